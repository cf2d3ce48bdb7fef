//! `wirecost report`: the tables of what was measured, from records alone.

mod page;
mod read;

use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use wirecost_analyze::measured::Measurements;
use wirecost_model::document;
use wirecost_model::run::Run;
use wirecost_model::status::Status;
use wirecost_report::atomic_file;
use wirecost_report::documents::{self, findings};
use wirecost_report::outputs::{self, Output, TerminalStyle};
use wirecost_report::tables::{self, TableRequest};
use wirecost_study::{Definition, Matrix, TableChoice};

use crate::Failure;
use crate::terminal;
pub(crate) use page::{HtmlFile, PageOptions, of_new_run};
use read::RunSet;

/// Width of tables in a file.
const WIDTH: usize = 80;

/// Show the results of studies, or of runs side by side.
///
/// Each RECORD is a study (`wirecost study run --out DIR`) or a run (written by `--out DIR` or `--json
/// FILE` of `wirecost run`). A study has the tables that it names, or one table of all its axes. Runs
/// outside a study share one table, one row each. For a single run the terminal shows the output of
/// `wirecost run`.
///
/// A figure of several runs is followed by the half-width of its 95% interval: `9.24 Gb/s ±2%`. A value
/// that was not measured is `-`; the reason is below the table.
///
/// CSV has all tables in one, with one header. `name`, `section` and `table` identify the table of a row.
/// Columns that several tables share appear once. Numbers are in the unit that the column names, without
/// prefixes. The ends of an interval have their own columns (`throughput low (b/s)`). A field is empty if
/// nothing was measured, with the reason in the last column, or if its table lacks the column.
///
/// HTML is one page with charts that opens offline (docs/html.md).
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Studies and runs to show.
    #[arg(value_name = "RECORD", required_unless_present = "list")]
    records: Vec<PathBuf>,

    /// Output format.
    #[arg(long, value_name = "FORMAT", default_value = "terminal", value_parser = format())]
    format: String,

    /// Write to this file in place of standard output; the file appears only when complete.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    page: PageOptions,

    /// Show this table: one of --list, or a table of the study by its title. Can be repeated.
    #[arg(long = "table", value_name = "NAME")]
    tables: Vec<String>,

    /// Print everything of a single run, in place of a summary of one screen.
    #[arg(long)]
    details: bool,

    /// List tables, metrics and formats.
    #[arg(long)]
    list: bool,
}

pub(super) fn format() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(
        outputs::ALL
            .iter()
            .map(|output| clap::builder::PossibleValue::new(output.name()).help(output.help())),
    )
}

impl Report {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        if self.list {
            // A reader that has seen enough (`| head`) is no failure.
            let _ = list(&mut terminal::stdout());
            return Ok(Status::Ok);
        }
        let output = outputs::find(&self.format)
            .ok_or_else(|| Failure::usage(format!("unknown format {}", self.format)))?;
        if output.name() == page::FORMAT {
            return self.write_page();
        }
        self.page.refuse_without("--format html")?;
        match self.written(output) {
            Ok(text) => self.put(&text)?,
            Err(failure) => {
                if output.name() == "json" && self.out.is_none() {
                    let _ = refuse(failure.status, &failure.message);
                }
                return Err(failure);
            }
        }
        Ok(Status::Ok)
    }

    fn written(&self, output: &dyn Output) -> Result<Vec<u8>, Failure> {
        if let Some(path) = &self.out {
            let failed =
                |error| Failure::usage(format!("cannot write {}: {error}", path.display()));
            atomic_file::check(path).map_err(failed)?;
        }
        let style = match self.out {
            Some(_) => TerminalStyle::plain(WIDTH),
            None => TerminalStyle::of(&io::stdout()),
        };
        let stacks = |study: Option<&Definition>| {
            Ok(self.wanted(study)?.iter().any(TableRequest::needs_stacks))
        };
        let kept = read::all(&self.records, &stacks)?;
        let document = if output.name() == "terminal"
            && self.tables.is_empty()
            && let [RunSet { definition: None, runs, .. }] = kept.as_slice()
            && let [(_, run)] = runs.as_slice()
        {
            match self.details {
                true => documents::run::document(run),
                false => documents::run::summary(run),
            }
        } else {
            self.report(kept)?
        };
        let mut text = Vec::new();
        let written = output.write(&mut text, &document, &style);
        written.map_err(|error| Failure::new(Status::Failed, error))?;
        Ok(text)
    }

    /// Writes the page of the records.
    fn write_page(&self) -> Result<Status, Failure> {
        let file = self.out.as_deref().map(|path| HtmlFile::new(path, self.page)).transpose()?;
        if file.is_none() && io::stdout().is_terminal() {
            let message = "a page of HTML is not for a terminal";
            return Err(Failure::usage(message).help("write it to a file with --out FILE"));
        }
        // Of a study, the page has the stacks of one run only.
        let kept = read::all(&self.records, &|study| match study {
            Some(_) => Ok(self.wanted(study)?.iter().any(TableRequest::needs_stacks)),
            None => Ok(self.records.len() == 1),
        })?;
        let names = page::names(&kept);
        let document = match kept.as_slice() {
            [one] => page::of(one, &self.wanted(one.definition.as_ref())?)?,
            several => {
                let message = format!(
                    "a page is of one study or of runs of one study, and these are of {}",
                    several.len()
                );
                return Err(Failure::usage(message).help("write a page for each"));
            }
        };
        match file {
            Some(file) => file.write(document, &names)?,
            // A reader that has seen enough (`| head`) is no failure.
            None => {
                drop(terminal::stdout().write_all(&page::written(document, self.page, &names)?))
            }
        }
        Ok(Status::Ok)
    }

    fn report(&self, kept: Vec<RunSet>) -> Result<document::Document, Failure> {
        let title = match kept.as_slice() {
            [one] => one.title.clone(),
            several => {
                let titles: Vec<&str> = several.iter().map(|one| one.title.as_str()).collect();
                titles.join("; ")
            }
        };
        let mut report = document::Document::new(&title);
        let several = kept.len() > 1;
        for RunSet { title, definition, runs, .. } in kept {
            let definition = definition.as_ref();
            let wanted = self.wanted(definition)?;
            let mut all = match definition.filter(|of| of.tune.is_some() && self.tables.is_empty())
            {
                Some(definition) => of_search(definition, &runs)?,
                None => Vec::new(),
            };
            all.extend(sections(definition, &wanted, &Measurements::of(runs))?);
            for mut section in all {
                if several {
                    section.title = format!("{title}: {}", section.title);
                }
                report.sections.push(section);
            }
        }
        Ok(report)
    }

    /// The tables of the command line, or those of the study.
    fn wanted(&self, study: Option<&Definition>) -> Result<Vec<TableRequest>, Failure> {
        if self.tables.is_empty() {
            return wanted(study);
        }
        let of_study = study.map(|study| study.tables.as_slice()).unwrap_or_default();
        let each = self.tables.iter().map(|name| {
            let own = of_study
                .iter()
                .find(|table| matches!(table, TableChoice::Columns { title, .. } if title == name));
            own.map_or_else(|| find(name), table)
        });
        each.collect()
    }

    fn put(&self, text: &[u8]) -> Result<(), Failure> {
        let Some(path) = &self.out else {
            // As above.
            let _ = terminal::stdout().write_all(text);
            return Ok(());
        };
        let failed = |error| {
            Failure::new(Status::Failed, format!("cannot write {}: {error}", path.display()))
        };
        atomic_file::write(path, text).map_err(failed)
    }
}

fn find(name: &str) -> Result<TableRequest, Failure> {
    tables::find(name)
        .map(TableRequest::Named)
        .map_err(|unknown| Failure::usage(unknown).help("`wirecost report --list` lists them"))
}

fn table(table: &TableChoice) -> Result<TableRequest, Failure> {
    match table {
        TableChoice::Named(name) => find(name),
        TableChoice::Columns { title, columns } => {
            Ok(TableRequest::Columns { title: title.clone(), columns: columns.clone() })
        }
    }
}

/// The table of a search.
const RATE_SEARCH: &str = "rate-search";

/// The tables that a study names, or that of its search, or one table of all its axes.
pub(crate) fn wanted(study: Option<&Definition>) -> Result<Vec<TableRequest>, Failure> {
    let of_study = study.map(|study| study.tables.as_slice()).unwrap_or_default();
    let wanted: Vec<TableRequest> = of_study.iter().map(table).collect::<Result<_, _>>()?;
    let is_search = study.is_some_and(|study| study.search.is_some());
    Ok(match wanted.is_empty() {
        true if is_search => vec![find(RATE_SEARCH)?],
        true => vec![TableRequest::general()],
        false => wanted,
    })
}

/// What a search for the best setting found.
fn of_search(
    definition: &Definition,
    runs: &[(String, Run)],
) -> Result<Vec<document::Section>, Failure> {
    let runs: Vec<Run> = runs.iter().map(|(_, run)| run.clone()).collect();
    if let Some(found) = super::tune::sections(definition, &runs)? {
        return Ok(found);
    }
    let mut section = document::Section::named("tune", "Result");
    section.text("The search has not come to its end; continue it with: wirecost study resume DIR");
    Ok(vec![section])
}

/// The report of a study, or of runs side by side.
pub(crate) fn sections(
    study: Option<&Definition>,
    wanted: &[TableRequest],
    measured: &Measurements,
) -> Result<Vec<document::Section>, Failure> {
    let mut sections = Vec::new();
    for wanted in wanted {
        sections.push(wanted.build(measured).map_err(no_column)?);
    }
    // The runs of a search for the best setting are chosen by results, so they are no sample of anything.
    let is_sample = study.is_none_or(|study| study.tune.is_none());
    if is_sample && !wanted.iter().any(TableRequest::concludes) {
        sections.extend(findings::section(measured));
    }
    let planned = planned(study);
    let mut about = tables::about(measured, &planned.points);
    for text in tables::left_out(planned.skipped.iter().map(|of| (&of.point, of.why.as_str()))) {
        about.text(text);
    }
    sections.push(about);
    Ok(sections)
}

/// The points of a study. What cannot be planned any more does not keep what was measured from being shown.
fn planned(study: Option<&Definition>) -> Matrix {
    study.and_then(|study| Matrix::of(study).ok()).unwrap_or_default()
}

/// Writes the page of a study that has just been made.
pub(crate) fn write_page_of_study(directory: &Path, file: &HtmlFile) -> Result<(), Failure> {
    let kept = read::all(&[directory.to_owned()], &|_| Ok(false))?;
    let [one] = kept.as_slice() else { return Ok(()) };
    let document = page::of(one, &wanted(one.definition.as_ref())?)?;
    file.write(document, &page::names(&kept))
}

/// The failure for a column that names no metric.
pub(crate) fn no_column(unknown: tables::UnknownColumn) -> Failure {
    Failure::usage(unknown).help("`wirecost report --list` lists the metrics")
}

fn list(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Tables (--table NAME, or `tables` of a study)")?;
    for kind in tables::ALL {
        writeln!(out, "  {:<15} {}", kind.name(), kind.help())?;
    }
    writeln!(out, "\nMetrics, for tables of columns (hosts.NAME. before those of hosts)")?;
    for metric in wirecost_analyze::metrics::all() {
        writeln!(out, "  {:<23} {}", metric.name, metric.help)?;
    }
    writeln!(out, "\nFormats (--format NAME)")?;
    for output in outputs::ALL {
        writeln!(out, "  {:<15} {}", output.name(), output.help())?;
    }
    Ok(())
}

/// Writes the document of a report that cannot be made.
pub(super) fn refuse(status: Status, message: &str) -> Result<(), Failure> {
    let mut report = document::Document::new("");
    report.status = status;
    report.error = Some(message.to_owned());
    let Some(output) = outputs::find("json") else { return Ok(()) };
    output
        .write(&mut terminal::stdout(), &report, &TerminalStyle::plain(WIDTH))
        .map_err(|error| Failure::new(Status::Failed, error))
}
