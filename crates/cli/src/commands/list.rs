use std::io::Write;

use clap::Args;
use wirecost_model::status::Status;
use wirecost_profile::builtins::{self, Default};
use wirecost_profile::{flowops, language, protocols};

use crate::Failure;
use crate::profile::find_builtin;
use crate::terminal;

/// In place of a built-in profile.
const TUNABLES: &str = "tunables";

/// List built-in profiles, flowops, options, protocols, engines and tunables.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Print the source of this built-in profile, or all tunables.
    #[arg(value_name = "@BUILTIN|tunables")]
    show: Option<String>,
}

impl List {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        let mut out = terminal::stdout();
        let written = match self.show {
            Some(name) if name == TUNABLES => tunables(&mut out),
            Some(name) => {
                let builtin = find_builtin(name.trim_start_matches('@'))?;
                write!(out, "{}", builtin.source)
            }
            None => list(&mut out),
        };
        // A reader that has seen enough (`| head`) is no failure.
        let _ = written;
        Ok(Status::Ok)
    }
}

fn list(out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "Built-in profiles (wirecost run @NAME [--var k=v]...)")?;
    let width = builtins::ALL.iter().map(|builtin| builtin.name.len()).max().unwrap_or(0);
    for builtin in &builtins::ALL {
        writeln!(out, "  @{:<width$} {}", builtin.name, builtin.summary)?;
        let variables: Vec<String> = builtin
            .variables
            .iter()
            .filter_map(|variable| match variable.default {
                Default::Text("") => Some(format!("{}=(none)", variable.name)),
                Default::Text(text) => Some(format!("{}={text}", variable.name)),
                Default::Host => None,
                Default::Executable => Some(format!("{}=(this program)", variable.name)),
            })
            .collect();
        writeln!(out, "   {:<width$} {}", "", variables.join(" "))?;
    }
    writeln!(out, "\nFlowops")?;
    for flowop in flowops::ALL {
        writeln!(out, "  {:<15} {}", flowop.name(), flowop.help())?;
    }
    writeln!(out, "\nOptions of flowops")?;
    let width = language::options().iter().map(|option| option.name.len()).max().unwrap_or(0);
    for option in language::options() {
        writeln!(out, "  {:<width$} {}", option.name, option.help)?;
    }
    writeln!(out, "\nProtocols and their requirements")?;
    for protocol in protocols::ALL {
        writeln!(out, "  {:<15} {}", protocol.name(), protocol.help())?;
    }
    writeln!(out, "\nEngines")?;
    for engine in wirecost_load::engines::ALL {
        writeln!(out, "  {:<15} {}", engine.name(), engine.help())?;
    }
    let tunables = wirecost_tunable::all().count();
    writeln!(out, "\nTunables (wirecost run --tune NAME=VALUE)")?;
    writeln!(out, "  {tunables} settings of hosts: wirecost list {TUNABLES}")
}

fn tunables(out: &mut impl Write) -> std::io::Result<()> {
    let width = wirecost_tunable::all().map(|tunable| tunable.name().len()).max().unwrap_or(0);
    for tunable in wirecost_tunable::all() {
        writeln!(out, "{:<width$} {}", tunable.name(), tunable.about())?;
    }
    Ok(())
}
