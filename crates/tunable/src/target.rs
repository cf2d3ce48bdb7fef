//! Where a setting is changed: a network namespace, a device in it, and the machine's files.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use wirecost_linux::ethtool::Ethtool;
use wirecost_linux::link::{Link, LinkError, Links};
use wirecost_linux::net_sysfs::NetSysfs;
use wirecost_linux::netns::{NetNs, NetNsError, NetNsId};

/// Where settings are changed.
#[derive(Debug, Clone)]
pub struct Target {
    namespace: Arc<NetNs>,
    id: NetNsId,
    device: Option<String>,
    root: PathBuf,
    bus: Option<String>,
    allow_pci: bool,
}

impl Target {
    /// The calling thread's network namespace.
    ///
    /// # Errors
    /// Those of [`NetNs::here`].
    pub fn here() -> Result<Self, NetNsError> {
        Self::of(NetNs::here()?)
    }

    /// A network namespace.
    ///
    /// # Errors
    /// When it cannot be entered, for which CAP_SYS_ADMIN is needed.
    pub fn of(namespace: NetNs) -> Result<Self, NetNsError> {
        let id = namespace.id()?;
        let namespace = Arc::new(namespace);
        let root = PathBuf::from("/");
        Ok(Self { namespace, id, device: None, root, bus: None, allow_pci: false })
    }

    /// A device of the namespace, for the settings that devices have.
    #[must_use]
    pub fn with_device(self, device: &str) -> Self {
        Self { device: Some(device.to_owned()), ..self }
    }

    /// Allows changing the PCI configuration of the device.
    #[must_use]
    pub fn allowing_pci(self) -> Self {
        Self { allow_pci: true, ..self }
    }

    /// Files of the machine below a directory instead of `/`: a copy of /sys and /proc. Settings of
    /// namespaces and of their devices are not files of the machine.
    #[must_use]
    pub fn below(self, root: &Path) -> Self {
        Self { root: root.to_owned(), ..self }
    }

    /// The place of the device on its bus, as `0000:00:03.0`, instead of what its driver tells.
    #[must_use]
    pub fn at_bus(self, place: &str) -> Self {
        Self { bus: Some(place.to_owned()), ..self }
    }

    /// The network namespace.
    #[must_use]
    pub fn namespace(&self) -> &NetNs {
        &self.namespace
    }

    #[must_use]
    pub fn id(&self) -> NetNsId {
        self.id
    }

    /// The device that was given.
    #[must_use]
    pub fn device_name(&self) -> Option<&str> {
        self.device.as_deref()
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn device(&self) -> Result<&str, Refusal> {
        self.device.as_deref().ok_or(Refusal::NoDevice)
    }

    pub(crate) fn links(&self) -> Result<Links, Refusal> {
        Links::of(&self.namespace).map_err(Refusal::from)
    }

    /// What the kernel says of the device.
    pub(crate) fn link(&self) -> Result<Link, Refusal> {
        let device = self.device()?;
        self.links()?.get(device).map_err(Refusal::from)
    }

    /// Waits until the device can carry packets; `false` if that takes longer than `patience`.
    pub(crate) fn wait_until_running(&self, patience: Duration) -> Result<bool, Refusal> {
        let waited = self.links()?.wait_until_running(self.device()?, patience);
        match waited {
            Ok(()) => Ok(true),
            Err(LinkError::Netlink { source, .. }) if source.kind() == io::ErrorKind::TimedOut => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The driver's side of the device, and the device's name.
    pub(crate) fn ethtool(&self) -> Result<(Ethtool, &str), Refusal> {
        let device = self.device()?;
        let ethtool = self.run(Ethtool::open)?.map_err(Refusal::failed("open a socket"))?;
        Ok((ethtool, device))
    }

    pub(crate) fn sysfs(&self) -> Result<NetSysfs, Refusal> {
        NetSysfs::of(&self.namespace).map_err(Refusal::from)
    }

    /// Directory of the device in [`Target::sysfs`].
    pub(crate) fn device_path(&self, file: &str) -> Result<String, Refusal> {
        Ok(format!("class/net/{}/{file}", self.device()?))
    }

    /// The place of the device on its bus.
    pub(crate) fn bus(&self) -> Result<String, Refusal> {
        if let Some(bus) = &self.bus {
            return Ok(bus.clone());
        }
        let (ethtool, device) = self.ethtool()?;
        let driver = ethtool.driver(device).map_err(Refusal::of_driver(device, "name a driver"))?;
        driver.bus.ok_or_else(|| Refusal::Unsupported(format!("`{device}` is on no bus")))
    }

    pub(crate) fn check_pci_allowed(&self) -> Result<(), Refusal> {
        if self.allow_pci { Ok(()) } else { Err(Refusal::PciNotAllowed) }
    }

    /// Runs `work` in the namespace.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Refusal> {
        self.namespace.run(work).map_err(Refusal::from)
    }

    /// A file of the machine, `path` without the leading `/`.
    pub(crate) fn file(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// Names in a directory of the machine, sorted; none where there is no such directory.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.file(directory)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Text of a file of the machine, without the end of line.
    pub(crate) fn read_file(&self, path: &str) -> Result<String, Refusal> {
        let text = fs::read_to_string(self.file(path))
            .map_err(Refusal::failed(format!("read /{path}")))?;
        Ok(text.trim_end().to_owned())
    }

    pub(crate) fn write_file(&self, path: &str, text: &str) -> Result<(), Refusal> {
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(self.file(path))
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(Refusal::failed(format!("write `{text}` to /{path}")))
    }
}

/// Why a tunable cannot be read or set on a host.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// This kernel, driver or device does not have it.
    #[error("{0}")]
    Unsupported(String),
    #[error("it is a setting of a device, and no device was given")]
    NoDevice,
    #[error("the PCI configuration of a device is changed only where that is allowed")]
    PciNotAllowed,
    #[error("failed to {act}")]
    Failed { act: String, source: io::Error },
}

impl Refusal {
    pub(crate) fn failed(act: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let act = act.into();
        move |source| Self::Failed { act, source }
    }

    /// Of a question to a driver, or an order.
    pub(crate) fn of_driver(device: &str, act: &str) -> impl FnOnce(io::Error) -> Self + use<> {
        let (device, act) = (device.to_owned(), act.to_owned());
        move |source| match source.kind() {
            io::ErrorKind::Unsupported => {
                Self::Unsupported(format!("the driver of `{device}` cannot {act}"))
            }
            _ => Self::Failed { act: format!("{act} of `{device}`"), source },
        }
    }
}

impl From<LinkError> for Refusal {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Netlink { act, device, source } => {
                Self::Failed { act: format!("{act} `{device}`"), source }
            }
            LinkError::Socket { source } => {
                Self::Failed { act: "open a netlink socket".to_owned(), source }
            }
            LinkError::Namespace(error) => error.into(),
        }
    }
}

impl From<NetNsError> for Refusal {
    fn from(error: NetNsError) -> Self {
        match error {
            NetNsError::Refused { act, name, source } => {
                Self::Failed { act: format!("{act} network namespace `{name}`"), source }
            }
            other => Self::Unsupported(other.to_string()),
        }
    }
}
