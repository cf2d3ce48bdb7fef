//! Every key of the language but the options of flowops, which both languages have in common.

/// A key and where it may stand.
#[derive(Debug)]
pub struct KeyDef {
    /// The kind of table that it is a key of.
    pub table: Table,
    pub name: &'static str,
    /// One line for a person.
    pub help: &'static str,
}

/// The kinds of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    Profile,
    Variable,
    Group,
    Transaction,
    Arrivals,
    Flowop,
    Loop,
    Mix,
    Choice,
    Quantity,
    Uniform,
    Lognormal,
    Exponential,
    Imix,
    ByStrand,
}

impl Table {
    /// For a person.
    pub fn name(self) -> &'static str {
        match self {
            Table::Profile => "a profile",
            Table::Variable => "a variable",
            Table::Group => "a group",
            Table::Transaction => "a transaction",
            Table::Arrivals => "arrivals",
            Table::Flowop => "a flowop",
            Table::Loop => "a loop",
            Table::Mix => "a mix",
            Table::Choice => "a choice of a mix",
            Table::Quantity => "a distribution",
            Table::Uniform => "uniform",
            Table::Lognormal => "lognormal",
            Table::Exponential => "exponential",
            Table::Imix => "imix",
            Table::ByStrand => "by_strand",
        }
    }
}

const fn key(table: Table, name: &'static str, help: &'static str) -> KeyDef {
    KeyDef { table, name, help }
}

pub static ALL: &[KeyDef] = &[
    key(Table::Profile, "name", "a label"),
    key(Table::Profile, "variables", "table of variables and their defaults"),
    key(Table::Profile, "group", "strands that run the same transactions; groups run concurrently"),
    key(Table::Variable, "default", "default value"),
    key(Table::Variable, "help", "one-line description"),
    key(Table::Group, "name", "a label"),
    key(Table::Group, "strands", "number of strands"),
    key(Table::Group, "transaction", "transactions of its strands, in order"),
    key(Table::Transaction, "iterations", "passes through the flowops"),
    key(Table::Transaction, "duration", "time in which passes begin"),
    key(Table::Transaction, "rate", "passes per second and strand"),
    key(Table::Transaction, "arrivals", "constant, poisson, or a trace"),
    key(Table::Transaction, "flowops", "flowops, loops and mixes, in order"),
    key(Table::Arrivals, "trace", "file of times at which passes begin"),
    key(Table::Arrivals, "intervals", "file of the times between passes"),
    key(Table::Flowop, "type", "kind of flowop"),
    key(Table::Loop, "loop", "number of times to execute its flowops"),
    key(Table::Loop, "flowops", "flowops, loops and mixes, in order"),
    key(Table::Mix, "mix", "choices; one is drawn each time"),
    key(Table::Choice, "weight", "relative frequency"),
    key(Table::Choice, "flowops", "flowops, loops and mixes, in order"),
    key(Table::Quantity, "uniform", "uniform from min to max"),
    key(Table::Quantity, "lognormal", "lognormal with this median"),
    key(Table::Quantity, "exponential", "exponential with this mean"),
    key(Table::Quantity, "table", "values with their weights"),
    key(Table::Quantity, "imix", "payload sizes of the simple IMIX"),
    key(Table::Quantity, "by_strand", "one fixed value per strand"),
    key(Table::Uniform, "min", "minimum"),
    key(Table::Uniform, "max", "maximum"),
    key(Table::Lognormal, "median", "median"),
    key(Table::Lognormal, "sigma", "standard deviation of the natural logarithm"),
    key(Table::Lognormal, "min", "minimum; smaller values become this"),
    key(Table::Lognormal, "max", "maximum; larger values become this"),
    key(Table::Exponential, "mean", "the mean"),
    key(Table::Exponential, "min", "minimum; smaller values become this"),
    key(Table::Exponential, "max", "maximum; larger values become this"),
    key(Table::Imix, "headers", "header bytes per IP packet"),
    key(Table::ByStrand, "from", "value of the first strand"),
    key(Table::ByStrand, "to", "value of the last strand"),
];

/// The names of the keys of a kind of table.
pub(super) fn names(table: Table) -> impl Iterator<Item = &'static str> {
    ALL.iter().filter(move |key| key.table == table).map(|key| key.name)
}
