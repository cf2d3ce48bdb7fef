//! Objects with congestion control: what is in them, and loading one.

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{MemberAttr, Struct, Var};
use libbpf_rs::{ErrorKind, Link, MapCore as _, MapType, Object, ObjectBuilder, OpenObject};
use wirecost_bpf_log::logged;
use wirecost_model::congestion::{BPF_BIC, NAME_SIZE, check_name, prefix};
use wirecost_model::plan::limits::CONGESTION_OBJECT;

use crate::{Error, maps, names, obstacle};

/// A link, not the map, holds the program: <https://elixir.bootlin.com/linux/v6.4/source/include/uapi/linux/bpf.h>.
const BPF_F_LINK: u32 = 1 << 13;
/// The structure of which an object has one.
const OPERATIONS: &str = "tcp_congestion_ops";
const SETTINGS: &str = ".rodata.settings";
/// Names that are tried: one that is taken is as good as impossible.
const ATTEMPTS: u32 = 8;

/// Where the one structure of operations of an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    map: String,
    /// Of the name in the map's value.
    offset: usize,
}

/// An object of the user's: a file that clang made of a program in C.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserObject {
    name: String,
    bytes: Vec<u8>,
}

impl UserObject {
    /// Reads what the object says of itself; the kernel is not asked.
    ///
    /// # Errors
    /// It is no object of BPF, has no congestion control or several, has other programs, maps that are
    /// too large, or a name that cannot be used.
    pub fn new(bytes: Vec<u8>) -> Result<Self, Error> {
        if bytes.len() > CONGESTION_OBJECT {
            let (length, most) = (bytes.len(), CONGESTION_OBJECT >> 10);
            let reason = format!("it has {length} bytes, and {most} KiB are the most");
            return Err(Error::Object(reason));
        }
        let no_object = |(_, _)| {
            let reason = "it is not an object file of BPF programs with type information (clang -g -O2 -target bpf -c)";
            Error::Object(reason.to_owned())
        };
        let open = logged(|| ObjectBuilder::default().name("user")?.open_memory(&bytes));
        let mut open = open.map_err(no_object)?;
        let place = find(&bytes).map_err(Error::Object)?;
        for program in open.progs() {
            let section = program.section().to_string_lossy();
            if !section.starts_with("struct_ops") {
                let name = program.name().to_string_lossy();
                let reason = format!(
                    "its program {name} is of section {section}, and only struct_ops is loaded"
                );
                return Err(Error::Object(reason));
            }
        }
        maps::check(&open).map_err(Error::Object)?;
        let name = read_name(&mut open, &place)?;
        check_name(&name).map_err(Error::Object)?;
        if prefix(&name) == prefix(BPF_BIC) {
            let reason = format!("its name {name} begins as {BPF_BIC} does; rename it");
            return Err(Error::Object(reason));
        }
        Ok(Self { name, bytes })
    }

    /// What `cc=` calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Loads it, under a name that no other process has. `name` is what the order calls it.
    ///
    /// # Errors
    /// What the kernel lacks or refuses, with the end of the verifier's log; the kernel has its name already; it has
    /// another name than the order says.
    pub fn load_as(&self, name: &str) -> Result<Loaded, Error> {
        if name != self.name {
            return Err(Error::Object(format!("its name is {}", self.name)));
        }
        if names::available().is_ok_and(|names| names.contains(&self.name)) {
            return Err(Error::Exists(self.name.clone()));
        }
        Loaded::load(&self.name, &self.bytes, &[], &[])
    }
}

/// Congestion control that sockets of this machine can choose until this is dropped or the process ends. Sockets that have
/// chosen it keep it.
pub struct Loaded {
    name: String,
    kernel_name: String,
    // Goes first: the program is registered as long as the link is there.
    _link: Link,
    object: Object,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").field("kernel_name", &self.kernel_name).finish_non_exhaustive()
    }
}

impl Loaded {
    pub(crate) fn load(
        name: &str,
        bytes: &[u8],
        settings: &[u8],
        without: &[&str],
    ) -> Result<Self, Error> {
        if let Some(obstacle) = obstacle() {
            return Err(obstacle.into());
        }
        let mut attempt = 0;
        loop {
            attempt += 1;
            match Self::load_as(name, &names::unique(name), bytes, settings, without) {
                Err((error, _))
                    if error.kind() == ErrorKind::AlreadyExists && attempt < ATTEMPTS => {}
                loaded => return loaded.map_err(Error::logged),
            }
        }
    }

    fn load_as(
        name: &str,
        kernel_name: &str,
        bytes: &[u8],
        settings: &[u8],
        without: &[&str],
    ) -> Result<Self, (libbpf_rs::Error, String)> {
        let place = find(bytes).map_err(|reason| {
            (std::io::Error::new(std::io::ErrorKind::InvalidData, reason).into(), String::new())
        })?;
        logged(|| {
            let mut open = ObjectBuilder::default().name("wirecost_cc")?.open_memory(bytes)?;
            for mut map in open.maps_mut() {
                let of_map = map.name().to_string_lossy().into_owned();
                if of_map.ends_with(SETTINGS) && !settings.is_empty() {
                    map.set_initial_value(settings)?;
                }
                if without.contains(&of_map.as_str()) {
                    map.set_autocreate(false)?;
                }
                if of_map == place.map {
                    map.set_map_flags(map.map_flags() | BPF_F_LINK)?;
                    let value = map.initial_value_mut();
                    let field = value.and_then(|value| field(value, place.offset));
                    let field = field.ok_or_else(|| invalid("its structure has no name"))?;
                    field.fill(0);
                    for (to, from) in field.iter_mut().zip(kernel_name.bytes()) {
                        *to = from;
                    }
                }
            }
            let mut object = open.load()?;
            let map = object.maps_mut().find(|map| map.name().to_string_lossy() == place.map);
            let link = map.ok_or_else(|| invalid("its map is missing"))?.attach_struct_ops()?;
            let (name, kernel_name) = (name.to_owned(), kernel_name.to_owned());
            Ok(Self { name, kernel_name, _link: link, object })
        })
    }

    /// As profiles name it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// For setsockopt(2), `TCP_CONGESTION`.
    #[must_use]
    pub fn kernel_name(&self) -> &str {
        &self.kernel_name
    }

    pub(crate) fn object(&self) -> &Object {
        &self.object
    }
}

fn invalid(reason: &str) -> libbpf_rs::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, reason).into()
}

/// The bytes of a name that begins there.
fn field(value: &mut [u8], offset: usize) -> Option<&mut [u8]> {
    value.get_mut(offset..offset.checked_add(NAME_SIZE)?)
}

/// The structure of operations that an object has, by its type information.
fn find(bytes: &[u8]) -> Result<Place, String> {
    let none = || format!("it has no structure {OPERATIONS} in section .struct_ops.link");
    let btf = logged(|| Btf::from_raw("user", bytes));
    let btf = btf.map_err(|_| none())?.ok_or_else(none)?;
    let mut places = Vec::new();
    for section in btf.type_by_kind::<libbpf_rs::btf::types::DataSec<'_>>() {
        let of = section.name().map(|name| name.to_string_lossy().into_owned());
        let is_struct_ops = of.as_deref().is_some_and(|name| name.starts_with(".struct_ops"));
        let is_maps = of.as_deref() == Some(".maps");
        for variable in section.iter() {
            let Some(variable) = btf.type_by_id::<Var<'_>>(variable.ty) else { continue };
            let map = variable.name().map(|name| name.to_string_lossy().into_owned());
            let structure = variable.next_type().map(|ty| ty.skip_mods_and_typedefs());
            let structure = structure.and_then(|ty| Struct::try_from(ty).ok());
            let (Some(map), Some(structure)) = (map, structure) else { continue };
            if is_maps && structure.iter().any(|m| m.name.is_some_and(|name| name == "pinning")) {
                return Err(format!("its map {map} is pinned, and would stay when the run ends"));
            }
            if !is_struct_ops {
                continue;
            }
            let kind = structure.name().map(|name| name.to_string_lossy().into_owned());
            let kind = kind.unwrap_or_default();
            if kind != OPERATIONS {
                return Err(format!("its {map} is a {kind}, and only {OPERATIONS} is loaded"));
            }
            let name = structure.iter().find(|m| m.name.is_some_and(|name| name == "name"));
            let Some(MemberAttr::Normal { offset }) = name.map(|member| member.attr) else {
                return Err(format!("its structure {map} has no name"));
            };
            places.push(Place { map, offset: offset as usize / 8 });
        }
    }
    match places.len() {
        1 => places.pop().ok_or_else(none),
        0 => Err(none()),
        several => Err(format!("it has {several} structures {OPERATIONS}; one is loaded")),
    }
}

fn read_name(open: &mut OpenObject, place: &Place) -> Result<String, Error> {
    let mut maps = open.maps_mut().filter(|map| map.map_type() == MapType::StructOps);
    let map = maps.find(|map| map.name().to_string_lossy() == place.map);
    let name = map.and_then(|mut map| {
        let bytes = field(map.initial_value_mut()?, place.offset)?;
        let text = bytes.split(|&byte| byte == 0).next()?;
        String::from_utf8(text.to_vec()).ok()
    });
    name.ok_or_else(|| Error::Object("its name is not text".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bic;

    #[test]
    fn an_object_says_its_name() {
        let place = find(bic::OBJECT).unwrap();
        assert_eq!(place.map, "bpf_bic");
        let mut open = ObjectBuilder::default().open_memory(bic::OBJECT).unwrap();
        assert_eq!(read_name(&mut open, &place).unwrap(), "bpf_bic");
    }

    fn refused(bytes: &[u8]) -> String {
        UserObject::new(bytes.to_vec()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_congestion_control_is_refused() {
        assert!(refused(b"hello").contains("not an object file of BPF"), "{}", refused(b"hello"));
        assert!(refused(&vec![0; CONGESTION_OBJECT + 1]).contains("1024 KiB are the most"));
        assert!(refused(bic::OBJECT).contains("begins as bpf-bic does"));
        let mut cut = bic::OBJECT.to_vec();
        cut.truncate(cut.len() / 2);
        assert!(refused(&cut).contains("not an object file of BPF"));
    }
}
