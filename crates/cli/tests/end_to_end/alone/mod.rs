//! What has to have the machine for itself, as what it looks for is in how runs of a study differ: these run
//! one at a time after all others (scripts/test).

mod departures;
mod idle;
mod machine_settings;
mod short_connections;
mod vm;
