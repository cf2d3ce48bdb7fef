//! C-states of the hardware under a host, as a terminal shows them.

mod tests {
    use wirecost_model::observe::{
        HardwareSection, Observation as _, ResidencyScope, StateResidency,
    };

    #[test]
    fn c_states_have_a_row_over_all_cores_and_packages() {
        let of = |scope, cpu, state: &str, percent| StateResidency {
            scope,
            cpu,
            state: state.to_owned(),
            percent,
        };
        let (core, package) = (ResidencyScope::Core, ResidencyScope::Package);
        let section = HardwareSection {
            residency: Some(vec![
                of(core, 0, "C6", 40.0),
                of(core, 1, "C6", 80.5),
                of(core, 0, "C1", 12.0),
                of(core, 1, "C1", 0.0),
                of(package, 0, "C10", 1.0),
                of(package, 0, "C2", 25.0),
            ]),
            ..HardwareSection::default()
        };
        insta::assert_snapshot!(super::super::shown(section.document(), 80));
        let section = HardwareSection {
            residency_reason: Some("no PMU `cstate_core` or `cstate_pkg`".to_owned()),
            ..HardwareSection::default()
        };
        insta::assert_snapshot!(super::super::shown(section.document(), 80));
    }
}
