//! Names of the kernel's functions: /proc/kallsyms, modules and BPF programs included.

use std::fs;
use std::io;
use std::ops::Range;

/// Functions of the kernel by address.
#[derive(Debug, Default)]
pub struct Kallsyms {
    /// Ascending, one for each address.
    functions: Vec<Function>,
    names: String,
    modules: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct Function {
    address: u64,
    /// Where its name is in `names`.
    begin: u32,
    length: u16,
    /// 1 + index of its module; 0 for the kernel's own.
    module: u16,
}

/// A function of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelFunction<'a> {
    pub name: &'a str,
    /// Where it begins.
    pub address: u64,
    /// None for the kernel's own.
    pub module: Option<&'a str>,
}

/// A function is not longer than this: what lies further behind the last one of a module is not of
/// it.
const LONGEST: u64 = 1 << 20;

impl Kallsyms {
    /// Of the running kernel.
    ///
    /// # Errors
    /// When the file cannot be read, or hides the addresses from this process
    /// ([`io::ErrorKind::PermissionDenied`]).
    pub fn load() -> io::Result<Self> {
        let symbols = Self::parse(&fs::read_to_string("/proc/kallsyms")?);
        if symbols.functions.len() < 2 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                // https://elixir.bootlin.com/linux/v6.12/source/kernel/ksyms_common.c#L25
                "/proc/kallsyms hides the addresses of kernel functions (they take CAP_SYSLOG, or \
                 kernel.kptr_restrict=0 and kernel.perf_event_paranoid=1)",
            ));
        }
        Ok(symbols)
    }

    /// Reads `ADDRESS TYPE NAME [MODULE]` of each line; other lines are left out. Of several names
    /// of one address the one is taken that a person would.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut symbols = Self { names: String::with_capacity(text.len() / 2), ..Self::default() };
        let mut last_module = ("", 0);
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            // Padding before a function is no function, and data is none either.
            if !matches!(kind, "t" | "T" | "w" | "W") || name.starts_with("__pfx_") {
                continue;
            }
            let module = words.next().map(|module| module.trim_matches(['[', ']']));
            let module = match module {
                None => 0,
                Some(module) if module == last_module.0 => last_module.1,
                Some(module) => {
                    let known = symbols.modules.iter().position(|known| known == module);
                    let index = known.unwrap_or_else(|| {
                        symbols.modules.push(module.to_owned());
                        symbols.modules.len() - 1
                    });
                    last_module = (module, u16::try_from(index + 1).unwrap_or(0));
                    last_module.1
                }
            };
            let (Ok(begin), Ok(length)) =
                (u32::try_from(symbols.names.len()), u16::try_from(name.len()))
            else {
                continue;
            };
            symbols.names.push_str(name);
            symbols.functions.push(Function { address, begin, length, module });
        }
        let Self { functions, names, .. } = &mut symbols;
        let rank = |function: &Function| {
            let name = named(names, function);
            (function.address, name.len() - name.trim_start_matches('_').len(), name.len())
        };
        functions.sort_by_key(rank);
        functions.dedup_by_key(|function| function.address);
        symbols
    }

    /// The function that an address is in.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<KernelFunction<'_>> {
        let after = self.functions.partition_point(|function| function.address <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        (address - function.address < LONGEST).then(|| KernelFunction {
            name: named(&self.names, function),
            address: function.address,
            module: self.modules.get(usize::from(function.module).wrapping_sub(1)).map(|m| &**m),
        })
    }

    /// Where a function of the kernel is: from its first byte to the beginning of the next one.
    #[must_use]
    pub fn range(&self, name: &str) -> Option<Range<u64>> {
        let at = self.functions.iter().position(|function| named(&self.names, function) == name)?;
        let [function, next] = self.functions.get(at..at + 2)? else { return None };
        Some(function.address..next.address.min(function.address + LONGEST))
    }

    /// How many functions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }
}

fn named<'a>(names: &'a str, function: &Function) -> &'a str {
    let begin = function.begin as usize;
    names.get(begin..begin + usize::from(function.length)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privilege;

    const TEXT: &str = "\
ffffffff81000000 T _stext
ffffffff81000000 T srso_alias_untrain_ret
ffffffff81000100 T __pfx_tcp_sendmsg
ffffffff81000110 T tcp_sendmsg
ffffffff81000200 t __memcpy
ffffffff81000200 W memcpy
ffffffff81000200 T __pi_memcpy
ffffffff82000000 D jiffies
ffffffffa0000000 t nft_do_chain\t[nf_tables]
ffffffffa0001000 t veth_xmit\t[veth]
ffffffffc0000000 t bpf_prog_6deef7357e7b4530_sched_switch\t[bpf]
not a line
";

    #[test]
    fn functions_are_found_by_any_address_in_them() {
        let symbols = Kallsyms::parse(TEXT);
        let name = |address| symbols.find(address).map(|f| f.name);
        assert_eq!(name(0xffff_ffff_8100_0110), Some("tcp_sendmsg"));
        assert_eq!(name(0xffff_ffff_8100_01ff), Some("tcp_sendmsg"));
        assert_eq!(name(0xffff_ffff_8100_0200), Some("memcpy"));
        assert_eq!(name(0xffff_ffff_80ff_ffff), None);
        // Far behind the last function there is none.
        assert_eq!(name(0xffff_ffff_9000_0000), None);
        assert_eq!(
            symbols.find(0xffff_ffff_a000_0123),
            Some(KernelFunction {
                name: "nft_do_chain",
                address: 0xffff_ffff_a000_0000,
                module: Some("nf_tables")
            })
        );
        assert_eq!(symbols.find(0xffff_ffff_c000_0001).unwrap().module, Some("bpf"));
    }

    #[test]
    fn a_function_ends_where_the_next_begins() {
        let symbols = Kallsyms::parse(TEXT);
        let sendmsg = 0xffff_ffff_8100_0110..0xffff_ffff_8100_0200;
        assert_eq!(symbols.range("tcp_sendmsg"), Some(sendmsg));
        let chain = 0xffff_ffff_a000_0000..0xffff_ffff_a000_1000;
        assert_eq!(symbols.range("nft_do_chain"), Some(chain));
        // Modules are far behind the kernel's own.
        let copy = symbols.range("memcpy").unwrap();
        assert_eq!(copy.end - copy.start, LONGEST);
        assert_eq!(symbols.range("jiffies"), None);
    }

    #[test]
    fn hidden_addresses_are_one_function_at_most() {
        let symbols = Kallsyms::parse("0000000000000000 T a\n0000000000000000 T b\n");
        assert!(symbols.len() < 2);
    }

    #[test]
    fn the_running_kernel_has_the_names_we_know() {
        if privilege::skip_without_tracing("the_running_kernel_has_the_names_we_know") {
            return;
        }
        let symbols = Kallsyms::load().unwrap();
        assert!(symbols.len() > 10_000, "{}", symbols.len());
        let text = fs::read_to_string("/proc/kallsyms").unwrap();
        let line = text.lines().find(|line| line.ends_with(" T tcp_sendmsg")).unwrap();
        let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        assert_eq!(symbols.find(address + 4).unwrap().name, "tcp_sendmsg");
    }
}
