//! Whatever a controller says, each line an order: reading and checking it never panics, and a plan that
//! passes the check can be compiled, as an agent does next.

use wirecost_model::order::{Known, Notice, Order};
use wirecost_model::plan::{EngineName, Extent, FileSizes, Plan};
use wirecost_program::{calls, limits, step};

/// Of a small machine, so that what passes takes little time.
const MEMORY: u64 = 64 << 20;

fn has_thread_for_each(engine: &EngineName) -> bool {
    engine.as_str() == "threads"
}

pub fn run(bytes: &[u8]) {
    let mut plan: Option<(Plan, Extent)> = None;
    for line in bytes.split(|&byte| byte == b'\n') {
        let _ = serde_json::from_slice::<Notice>(line);
        let Ok(order) = serde_json::from_slice::<Order>(line) else { continue };
        let extent = plan.as_ref().map(|(_, extent)| extent);
        let io = &calls::KnownOptions;
        let known = Known { now: 1 << 40, memory: MEMORY, has_thread_for_each, extent, io };
        if let Err(error) = order.check(known) {
            assert!(!error.to_string().is_empty());
            continue;
        }
        match order {
            Order::Prepare(accepted) => {
                compile(&accepted, &[]);
                let extent = Extent::of(&accepted);
                plan = Some((*accepted, extent));
            }
            Order::Connect(endpoints) => {
                let files: Vec<FileSizes> =
                    endpoints.hosts.into_iter().flat_map(|host| host.files).collect();
                if let Some((plan, _)) = &plan {
                    compile(plan, &files);
                }
            }
            _ => {}
        }
    }
}

fn compile(plan: &Plan, files: &[FileSizes]) {
    let program = &plan.program;
    let phases = program.groups.iter().map(|group| group.phases.len()).max().unwrap_or(0);
    let _ = step::compile(program, plan.seed, files);
    let _ = calls::settings(program);
    for phase in 0..phases as u32 {
        let _ = limits::may_wait(program, phase);
    }
}
