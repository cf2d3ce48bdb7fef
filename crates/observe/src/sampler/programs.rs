//! Names of functions of programs and libraries: blazesym reads their ELF symbols and demangles C++
//! and Rust (docs/adr/0010-sampling.md).

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolizer};

use super::mappings::Mapping;

/// Offsets in files to names; what was looked up once is kept.
#[derive(Debug, Default)]
pub(super) struct Programs {
    /// In a box, as it is large and most observers never need it.
    symbolizer: Option<Box<Symbolizer>>,
    names: HashMap<((String, u64), u64), Option<String>>,
}

impl Programs {
    /// Looks up what is not known yet of one file, as a process sees it.
    pub(super) fn look_up(&mut self, process: u32, mapping: &Mapping, offsets: &[u64]) {
        let key = |offset: u64| (mapping.file.clone(), offset);
        let unknown: Vec<u64> = offsets
            .iter()
            .copied()
            .filter(|&offset| !self.names.contains_key(&key(offset)))
            .collect();
        if unknown.is_empty() {
            return;
        }
        let symbolizer = self.symbolizer.get_or_insert_with(|| {
            let builder = Symbolizer::builder()
                .enable_code_info(false)
                .enable_inlined_fns(false)
                .enable_demangling(true);
            Box::new(builder.build())
        });
        let mut found = vec![None; unknown.len()];
        if let Some(path) = file_of(process, mapping) {
            let mut elf = Elf::new(path);
            elf.debug_syms = false;
            let input = Input::FileOffset(&unknown[..]);
            // A file that is gone or no ELF has no names.
            if let Ok(symbols) = symbolizer.symbolize(&Source::Elf(elf), input) {
                for (name, symbol) in found.iter_mut().zip(&symbols) {
                    *name = symbol.as_sym().map(|symbol| symbol.name.to_string());
                }
            }
        }
        self.names.extend(unknown.into_iter().map(key).zip(found));
    }

    pub(super) fn name(&self, mapping: &Mapping, offset: u64) -> Option<&str> {
        self.names.get(&(mapping.file.clone(), offset))?.as_deref()
    }
}

/// The file that was mapped, and none that has its path now: of the process, or ours where it has
/// ended.
fn file_of(process: u32, mapping: &Mapping) -> Option<String> {
    let paths = [format!("/proc/{process}/root{}", mapping.path), mapping.path.clone()];
    paths
        .into_iter()
        .filter(|_| mapping.path.starts_with('/'))
        .find(|path| fs::metadata(path).is_ok_and(|file| file.ino() == mapping.file.1))
}

#[cfg(test)]
mod tests {
    use super::super::mappings::Mappings;
    use super::*;

    /// Its name is Rust's, mangled in the file.
    #[inline(never)]
    fn a_function_to_be_found() -> u64 {
        std::hint::black_box(7)
    }

    #[test]
    fn functions_of_this_program_are_found_and_demangled() {
        let address = a_function_to_be_found as fn() -> u64 as usize as u64;
        assert_eq!(a_function_to_be_found(), 7);
        let process = std::process::id();
        let mappings = Mappings::of(process);
        let mapping = mappings.find(address).unwrap();
        let offset = mapping.offset_of(address);
        let mut programs = Programs::default();
        programs.look_up(process, mapping, &[offset, offset]);
        let name = programs.name(mapping, offset).unwrap();
        assert!(name.ends_with("programs::tests::a_function_to_be_found"), "{name}");
    }

    #[test]
    fn a_file_that_is_gone_has_no_names() {
        let process = std::process::id();
        let mappings = Mappings::of(process);
        let here = a_file_that_is_gone_has_no_names as fn() as usize as u64;
        let mut mapping = mappings.find(here).unwrap().clone();
        mapping.path += " (deleted)";
        mapping.file.1 += 1;
        let mut programs = Programs::default();
        programs.look_up(process, &mapping, &[0x1000]);
        assert_eq!(programs.name(&mapping, 0x1000), None);
    }
}
