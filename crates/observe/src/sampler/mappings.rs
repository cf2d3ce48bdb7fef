//! Which file an address of a process is in.

use std::fs;

/// Code that a process has in memory, ascending.
#[derive(Debug, Default)]
pub(super) struct Mappings(Vec<Mapping>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    begin: u64,
    end: u64,
    offset: u64,
    /// Device and inode: what tells files of one path apart.
    pub(super) file: (String, u64),
    /// Path, `[vdso]`, or empty for code that is in no file.
    pub(super) path: String,
}

impl Mappings {
    /// Of a process that is alive; of none there are none.
    pub(super) fn of(process: u32) -> Self {
        match process {
            0 => Self::default(),
            _ => Self::parse(
                &fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default(),
            ),
        }
    }

    /// The text of /proc/PID/maps, proc_pid_maps(5). Lines of another shape are left out.
    fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(mapping).collect())
    }

    pub(super) fn find(&self, address: u64) -> Option<&Mapping> {
        let after = self.0.partition_point(|mapping| mapping.begin <= address);
        self.0.get(after.checked_sub(1)?).filter(|mapping| address < mapping.end)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Mapping {
    pub(super) fn offset_of(&self, address: u64) -> u64 {
        address - self.begin + self.offset
    }

    /// Name of the file without its folder.
    pub(super) fn module(&self) -> &str {
        match self.path.rsplit('/').next() {
            Some("") | None => "[anonymous]",
            Some(name) => name,
        }
    }
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (begin, end) = words.next()?.split_once('-')?;
    if words.next()?.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = hexadecimal(words.next()?)?;
    let (device, inode) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
    Some(Mapping {
        begin: hexadecimal(begin)?,
        end: hexadecimal(end)?,
        offset,
        file: (device, inode),
        path: words.next().unwrap_or_default().trim_start().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55d0a7a00000-55d0a7a10000 r--p 00000000 fe:00 1234                       /usr/bin/app
55d0a7a10000-55d0a7a40000 r-xp 00010000 fe:00 1234                       /usr/bin/app
7f0000000000-7f0000001000 r-xp 00002000 fe:00 99                         /opt/a b/lib c.so
7f0000100000-7f0000101000 rwxp 00000000 00:00 0 
7fff10000000-7fff10002000 r-xp 00000000 00:00 0                          [vdso]
nonsense
";

    #[test]
    fn addresses_are_found_in_the_code_of_their_file() {
        let mappings = Mappings::parse(TEXT);
        let found = mappings.find(0x55d0_a7a1_0123).unwrap();
        assert_eq!((found.path.as_str(), found.module()), ("/usr/bin/app", "app"));
        assert_eq!(found.offset_of(0x55d0_a7a1_0123), 0x10123);
        assert_eq!(found.file, ("fe:00".to_owned(), 1234));
        assert_eq!(mappings.find(0x7f00_0000_0fff).unwrap().module(), "lib c.so");
        assert_eq!(mappings.find(0x7f00_0010_0000).unwrap().module(), "[anonymous]");
        assert_eq!(mappings.find(0x7fff_1000_0000).unwrap().module(), "[vdso]");
        // Data, and nothing at all.
        assert_eq!(mappings.find(0x55d0_a7a0_0000), None);
        assert_eq!(mappings.find(0x1000), None);
    }

    #[test]
    fn this_process_has_code() {
        let here = this_process_has_code as fn() as usize as u64;
        let mappings = Mappings::of(std::process::id());
        assert!(mappings.find(here).unwrap().path.starts_with('/'));
        assert!(Mappings::of(0).is_empty());
    }
}
