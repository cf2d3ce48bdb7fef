//! BPF objects: loading what the kernel has the hooks for, attaching, reading their maps.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder, ProgramInput};
use wirecost_bpf_log::{excerpt, logged};
use wirecost_linux::environment::lockdown;
use wirecost_linux::privilege::{TRACING, missing};
use wirecost_model::observe::ProbeCost;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An object as it was compiled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compiled {
    pub(crate) name: &'static str,
    pub(crate) bytes: &'static [u8],
}

/// The object that build.rs made of `src/$path.bpf.c`, named by its folders and file.
macro_rules! compiled {
    ($name:literal, $file:literal) => {
        $crate::bpf::Compiled {
            name: $name,
            bytes: include_bytes!(concat!(env!("OUT_DIR"), "/", $file, ".bpf.o")),
        }
    };
}
pub(crate) use compiled;

/// Section of programs that are not attached but run by [`LoadedObject::run_on`].
const BY_HAND: &str = "raw_tp";

/// Why BPF gives nothing.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    #[error("the kernel has no type information (/sys/kernel/btf/vmlinux: CONFIG_DEBUG_INFO_BTF)")]
    NoBtf,
    #[error("loading BPF programs is not permitted: run as root, or with CAP_BPF and CAP_PERFMON")]
    NotPermitted,
    #[error(
        "kernel lockdown (confidentiality) forbids BPF programs to read kernel memory: boot with \
         lockdown=integrity, or without lockdown"
    )]
    LockedDown,
    /// The log is what libbpf and the verifier said.
    #[error("the BPF object {object} was not loaded: {reason}{}", excerpt(log))]
    Load { object: &'static str, reason: String, log: String },
    #[error("the BPF program {program} was not attached: {reason}")]
    Attach { program: String, reason: String },
    #[error("the BPF map {map} cannot be read: {reason}")]
    Map { map: String, reason: String },
}

/// Why an object was not loaded, by who `may` load and what lockdown there is.
fn refused(
    object: &'static str,
    error: &libbpf_rs::Error,
    log: String,
    may: bool,
    lockdown: Option<&str>,
) -> BpfError {
    // The verifier says no with the same error.
    let denied = error.kind() == libbpf_rs::ErrorKind::PermissionDenied;
    // To the verifier a helper that is locked away is one that does not exist:
    // https://elixir.bootlin.com/linux/v6.12/source/kernel/trace/bpf_trace.c#L1440
    // libbpf then takes the helper of older kernels, bpf_probe_read, which is locked away as well.
    let locked = denied || log.contains("bpf_probe_read");
    match lockdown {
        _ if denied && !may => BpfError::NotPermitted,
        Some("confidentiality") if locked => BpfError::LockedDown,
        _ => BpfError::Load { object, reason: error.to_string(), log },
    }
}

/// A loaded object, and what holds its programs in their hooks.
pub(crate) struct LoadedObject {
    object: Object,
    links: Vec<Link>,
    /// Programs that were left out: they have no descriptor.
    absent: Vec<String>,
    /// Hooks that this kernel does not have.
    pub(crate) missing: Vec<String>,
    load: Duration,
    attach: Duration,
}

impl std::fmt::Debug for LoadedObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadedObject").field("hooks", &self.links.len()).finish_non_exhaustive()
    }
}

/// How an object is to be loaded.
#[derive(Debug, Default)]
pub(crate) struct Options<'a> {
    /// Programs and maps that are left out, by name.
    pub(crate) without: &'a [&'a str],
    /// Bytes of the constants in the section `.rodata.settings`.
    pub(crate) settings: &'a [u8],
    /// Maps of another object to be used in place of its own, by name.
    pub(crate) shared: &'a [(&'a str, MapHandle)],
    /// The tracepoint of all programs, in place of the one that their section names.
    pub(crate) target: Option<&'a str>,
}

impl LoadedObject {
    /// Loads all programs whose tracepoint this kernel has; nothing runs yet.
    ///
    /// # Errors
    /// What the kernel, libbpf or the verifier said.
    pub(crate) fn load(compiled: Compiled, options: &Options<'_>) -> Result<Self, BpfError> {
        let btf = Btf::from_path("/sys/kernel/btf/vmlinux").map_err(|_| BpfError::NoBtf)?;
        let begin = Instant::now();
        logged(|| Self::open_and_load(compiled, options, &btf))
            .map_err(|(error, log)| {
                let may = missing(TRACING).is_empty();
                refused(compiled.name, &error, log, may, lockdown().as_deref())
            })
            .map(|(object, absent, missing)| Self {
                object,
                links: Vec::new(),
                absent,
                missing,
                load: begin.elapsed(),
                attach: Duration::ZERO,
            })
    }

    fn open_and_load(
        compiled: Compiled,
        options: &Options<'_>,
        btf: &Btf<'_>,
    ) -> libbpf_rs::Result<(Object, Vec<String>, Vec<String>)> {
        let mut object =
            ObjectBuilder::default().name(compiled.name)?.open_memory(compiled.bytes)?;
        let (mut absent, mut missing) = (Vec::new(), Vec::new());
        for mut program in object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let mut section = program.section().to_string_lossy().into_owned();
            if let Some(target) = options.target {
                program.set_attach_target(0, Some(target.to_owned()))?;
                section = format!("tp_btf/{target}");
            }
            let wanted = !options.without.contains(&name.as_str());
            // https://elixir.bootlin.com/linux/v6.12/source/include/trace/bpf_probe.h: a tracepoint
            // leaves a type of this name.
            let there = section.strip_prefix("tp_btf/").is_none_or(|hook| {
                btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{hook}")).is_some()
            });
            if wanted && !there {
                missing.push(section.trim_start_matches("tp_btf/").to_owned());
            }
            program.set_autoload(wanted && there);
            if !(wanted && there) {
                absent.push(name);
            }
        }
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name.ends_with(".rodata.settings") && !options.settings.is_empty() {
                map.set_initial_value(options.settings)?;
            }
            if options.without.contains(&name.as_str()) {
                map.set_autocreate(false)?;
            }
            if let Some((_, fd)) = options.shared.iter().find(|(shared, _)| *shared == name) {
                map.reuse_fd(fd.as_fd())?;
            }
        }
        Ok((object.load()?, absent, missing))
    }

    /// Puts the programs into their hooks.
    ///
    /// # Errors
    /// The first that was refused; those before it are detached again.
    pub(crate) fn attach(&mut self) -> Result<(), BpfError> {
        let begin = Instant::now();
        for program in self.object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if program.section() == BY_HAND || self.absent.contains(&name) {
                continue;
            }
            match program.attach() {
                Ok(link) => self.links.push(link),
                Err(error) => {
                    self.links.clear();
                    return Err(BpfError::Attach { program: name, reason: error.to_string() });
                }
            }
        }
        self.attach = begin.elapsed();
        Ok(())
    }

    pub(crate) fn detach(&mut self) {
        self.links.clear();
    }

    /// Runs a program of section `raw_tp` on a CPU, with one argument.
    pub(crate) fn run_on(&self, program: &str, cpu: u32, argument: u64) -> Result<(), BpfError> {
        let failed = |reason: String| BpfError::Attach { program: program.to_owned(), reason };
        let found = self.object.progs_mut().find(|p| p.name() == program);
        let found = found.ok_or_else(|| failed("it is not there".to_owned()))?;
        let mut context = argument.to_ne_bytes();
        /// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/bpf.h#L1437>
        const BPF_F_TEST_RUN_ON_CPU: u32 = 1;
        let input = ProgramInput {
            context_in: Some(&mut context),
            cpu,
            flags: BPF_F_TEST_RUN_ON_CPU,
            ..ProgramInput::default()
        };
        found.test_run(input).map(drop).map_err(|error| failed(error.to_string()))
    }

    /// A map, to share it with another object.
    pub(crate) fn share(&self, name: &'static str) -> Option<(&'static str, MapHandle)> {
        let map = self.object.maps().find(|map| map.name() == name)?;
        Some((name, MapHandle::try_from(&map).ok()?))
    }

    /// Every value of a map by key: one for each CPU that is possible in a map per CPU, else one.
    ///
    /// # Errors
    /// A map that is not there, or values of another size than `V`.
    pub(crate) fn values<K, V>(&self, name: &str) -> Result<Vec<(K, Vec<V>)>, BpfError>
    where
        K: FromBytes + KnownLayout + Immutable,
        V: FromBytes + KnownLayout + Immutable,
    {
        let failed = |reason: String| BpfError::Map { map: name.to_owned(), reason };
        let map = self.object.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| failed("it is not there".to_owned()))?;
        let read = |bytes: &[u8]| {
            V::read_from_prefix(bytes).map(|(value, _)| value).map_err(|_| {
                failed(format!("its values have {} bytes, not {}", bytes.len(), size_of::<V>()))
            })
        };
        if (map.value_size() as usize) != size_of::<V>() {
            return Err(failed(format!(
                "its values have {} bytes, not {}",
                map.value_size(),
                size_of::<V>()
            )));
        }
        let mut all = Vec::new();
        for key in map.keys() {
            let known = K::read_from_bytes(&key)
                .map_err(|_| failed(format!("its keys have {} bytes", key.len())))?;
            let values: Option<Vec<Vec<u8>>> = if map.map_type().is_percpu() {
                map.lookup_percpu(&key, MapFlags::ANY)
            } else {
                map.lookup(&key, MapFlags::ANY).map(|value| value.map(|value| vec![value]))
            }
            .map_err(|error| failed(error.to_string()))?;
            // An entry that has just gone.
            let Some(values) = values else { continue };
            let values = values.iter().map(|bytes| read(bytes)).collect::<Result<_, _>>()?;
            all.push((known, values));
        }
        Ok(all)
    }

    /// The first values of an array.
    ///
    /// # Errors
    /// A map that is not there, or values of another size than `V`.
    pub(crate) fn first<V: FromBytes + KnownLayout + Immutable>(
        &self,
        name: &str,
        number: usize,
    ) -> Result<Vec<V>, BpfError> {
        let failed = |reason: String| BpfError::Map { map: name.to_owned(), reason };
        let map = self.object.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| failed("it is not there".to_owned()))?;
        if map.value_size() as usize != size_of::<V>() {
            let size = map.value_size();
            return Err(failed(format!("its values have {size} bytes, not {}", size_of::<V>())));
        }
        (0..number as u32)
            .map(|key| {
                let value = map
                    .lookup(&key.to_ne_bytes(), MapFlags::ANY)
                    .map_err(|error| failed(error.to_string()))?
                    .ok_or_else(|| failed(format!("it has no {key}")))?;
                let read = V::read_from_prefix(&value).map(|(value, _)| value);
                read.map_err(|_| failed(format!("its values have {} bytes", value.len())))
            })
            .collect()
    }

    /// The values of one key of a map per CPU, one for each CPU that is possible.
    ///
    /// # Errors
    /// A map or key that is not there, or values of another size than `V`.
    pub(crate) fn percpu<V: FromBytes + KnownLayout + Immutable>(
        &self,
        name: &str,
        key: u32,
    ) -> Result<Vec<V>, BpfError> {
        let failed = |reason: String| BpfError::Map { map: name.to_owned(), reason };
        let map = self.object.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| failed("it is not there".to_owned()))?;
        let size = map.value_size() as usize;
        let wrong = || failed(format!("its values have {size} bytes, not {}", size_of::<V>()));
        if size != size_of::<V>() {
            return Err(wrong());
        }
        let values = map
            .lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| failed(error.to_string()))?
            .ok_or_else(|| failed(format!("it has no {key}")))?;
        let read = |bytes: &Vec<u8>| V::read_from_prefix(bytes).map(|(value, _)| value).ok();
        values.iter().map(|bytes| read(bytes).ok_or_else(wrong)).collect()
    }

    /// Writes the values of a key, one for each CPU.
    pub(crate) fn set_percpu<V: IntoBytes + Immutable>(
        &self,
        name: &str,
        key: u32,
        values: &[V],
    ) -> Result<(), BpfError> {
        let failed = |reason: String| BpfError::Map { map: name.to_owned(), reason };
        let map = self.object.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| failed("it is not there".to_owned()))?;
        let values: Vec<Vec<u8>> = values.iter().map(|value| value.as_bytes().to_vec()).collect();
        map.update_percpu(&key.to_ne_bytes(), &values, MapFlags::ANY)
            .map_err(|error| failed(error.to_string()))
    }

    /// Writes the value of a key.
    pub(crate) fn set<K: IntoBytes + Immutable, V: IntoBytes + Immutable>(
        &self,
        name: &str,
        key: &K,
        value: &V,
    ) -> Result<(), BpfError> {
        let failed = |reason: String| BpfError::Map { map: name.to_owned(), reason };
        let map = self.object.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| failed("it is not there".to_owned()))?;
        map.update(key.as_bytes(), value.as_bytes(), MapFlags::ANY)
            .map_err(|error| failed(error.to_string()))
    }

    /// Empties a map per CPU, a hash or a map of stacks.
    pub(crate) fn clear<V: IntoBytes + Immutable + Default + Clone>(
        &self,
        name: &str,
    ) -> Result<(), BpfError> {
        let failed = |reason: String| BpfError::Map { map: name.to_owned(), reason };
        let map = self.object.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| failed("it is not there".to_owned()))?;
        let kind = map.map_type();
        let zeros = vec![V::default().as_bytes().to_vec(); possible_cpus()];
        for key in map.keys() {
            let done = match kind.is_hash_map() || kind == MapType::StackTrace {
                true => map.delete(&key),
                false => map.update_percpu(&key, &zeros, MapFlags::ANY),
            };
            done.map_err(|error| failed(error.to_string()))?;
        }
        Ok(())
    }

    /// What it cost, and what it missed.
    pub(crate) fn cost(&self) -> ProbeCost {
        let mut cost = ProbeCost {
            load_ms: self.load.as_secs_f64() * 1e3,
            attach_ms: self.attach.as_secs_f64() * 1e3,
            ..ProbeCost::default()
        };
        for program in self.object.progs() {
            if self.absent.iter().any(|absent| program.name() == absent.as_str()) {
                continue;
            }
            cost.hooks += u32::from(program.section() != BY_HAND);
            cost.recursion_misses += recursion_misses(program.as_fd().as_raw_fd()).unwrap_or(0);
        }
        cost
    }
}

/// Runs that did not happen because the program was under way on that CPU already:
/// <https://elixir.bootlin.com/linux/v6.12/source/kernel/bpf/syscall.c#L2406>
fn recursion_misses(fd: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("recursion_misses:")?.trim().parse().ok())
}

/// CPUs that maps per CPU have values for.
pub(crate) fn possible_cpus() -> usize {
    libbpf_rs::num_possible_cpus().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;
    use wirecost_linux::privilege;

    use super::*;

    #[test]
    fn what_the_verifier_says_is_told() {
        if privilege::skip_without_tracing("what_the_verifier_says_is_told") {
            return;
        }
        let refused = LoadedObject::load(compiled!("refused", "bpf_refused"), &Options::default());
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("the BPF object refused was not loaded"), "{error}");
        assert!(error.contains("map_value_or_null"), "{error}");
    }

    #[test]
    fn a_refusal_says_what_would_help() {
        let denied = || {
            libbpf_rs::Error::from(std::io::Error::from_raw_os_error(Errno::PERM.raw_os_error()))
        };
        let invalid = || {
            libbpf_rs::Error::from(std::io::Error::from_raw_os_error(Errno::INVAL.raw_os_error()))
        };
        let helper = "program of this type cannot use helper bpf_probe_read_kernel#113";
        let older_helper = "unknown func bpf_probe_read#4";
        let told = |error: &libbpf_rs::Error, log: &str, may, lockdown| {
            refused("segments", error, log.to_owned(), may, lockdown).to_string()
        };
        for lockdown in [None, Some("none"), Some("integrity"), Some("confidentiality")] {
            // Who has no rights needs them first.
            assert!(told(&denied(), "", false, lockdown).contains("run as root"));
            let closed = lockdown == Some("confidentiality");
            for text in [
                told(&denied(), "", true, lockdown),
                told(&invalid(), helper, true, lockdown),
                told(&invalid(), older_helper, true, lockdown),
            ] {
                assert_eq!(text.contains("lockdown=integrity"), closed, "{text}");
                assert_eq!(text.contains("segments was not loaded"), !closed, "{text}");
            }
            // What is wrong for another reason keeps it.
            let text = told(&invalid(), "R1 invalid mem access", true, lockdown);
            assert!(text.contains("invalid mem access"), "{text}");
        }
    }

    #[test]
    fn a_map_that_is_not_there_or_of_another_size_is_an_error() {
        if privilege::skip_without_tracing("a_map_that_is_not_there_or_of_another_size_is_an_error")
        {
            return;
        }
        let tracker = compiled!("tracker", "tracker_tracker");
        let loaded = LoadedObject::load(tracker, &Options::default()).unwrap();
        let error = loaded.values::<u32, u64>("no_map").unwrap_err().to_string();
        assert!(error.contains("no_map"), "{error}");
        let error = loaded.values::<u32, u64>("cpus").unwrap_err().to_string();
        assert!(error.contains("bytes, not 8"), "{error}");
    }
}
