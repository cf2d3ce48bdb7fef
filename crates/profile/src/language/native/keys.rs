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
    key(Table::Profile, "variables", "table of variables with what they are by default"),
    key(Table::Profile, "group", "strands that run the same transactions, beside the other groups"),
    key(Table::Variable, "default", "what it is where nobody says otherwise"),
    key(Table::Variable, "help", "one line for a person"),
    key(Table::Group, "name", "a label"),
    key(Table::Group, "strands", "number of strands"),
    key(Table::Group, "transaction", "what its strands do, one after another"),
    key(Table::Transaction, "iterations", "passes through the flowops"),
    key(Table::Transaction, "duration", "time in which passes begin"),
    key(Table::Transaction, "rate", "passes per second and strand"),
    key(Table::Transaction, "arrivals", "constant, poisson, or a trace"),
    key(Table::Transaction, "flowops", "flowops, loops and mixes, one after another"),
    key(Table::Arrivals, "trace", "file of the times at which passes are to begin"),
    key(Table::Arrivals, "intervals", "file of the times between passes"),
    key(Table::Flowop, "type", "what it does"),
    key(Table::Loop, "loop", "how often its flowops are executed, one after another"),
    key(Table::Loop, "flowops", "flowops, loops and mixes, one after another"),
    key(Table::Mix, "mix", "choices of which one is drawn each time"),
    key(Table::Choice, "weight", "how often it is drawn, relative to the others"),
    key(Table::Choice, "flowops", "flowops, loops and mixes, one after another"),
    key(Table::Quantity, "uniform", "all from min to max are as likely"),
    key(Table::Quantity, "lognormal", "of this median; the logarithm is normal"),
    key(Table::Quantity, "exponential", "of this mean"),
    key(Table::Quantity, "table", "values, each with its weight"),
    key(Table::Quantity, "imix", "payloads of the simple IMIX"),
    key(Table::Quantity, "by_strand", "each strand has one value and keeps it"),
    key(Table::Uniform, "min", "the least"),
    key(Table::Uniform, "max", "the most"),
    key(Table::Lognormal, "median", "half are less"),
    key(Table::Lognormal, "sigma", "standard deviation of the natural logarithm"),
    key(Table::Lognormal, "min", "the least; less is drawn as this"),
    key(Table::Lognormal, "max", "the most; more is drawn as this"),
    key(Table::Exponential, "mean", "the mean"),
    key(Table::Exponential, "min", "the least; less is drawn as this"),
    key(Table::Exponential, "max", "the most; more is drawn as this"),
    key(Table::Imix, "headers", "bytes of an IP packet that are no payload"),
    key(Table::ByStrand, "from", "value of the first strand"),
    key(Table::ByStrand, "to", "value of the last strand"),
];

/// The names of the keys of a kind of table.
pub(super) fn names(table: Table) -> impl Iterator<Item = &'static str> {
    ALL.iter().filter(move |key| key.table == table).map(|key| key.name)
}
