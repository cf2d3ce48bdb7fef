//! The tables of functions, as a terminal shows them.

mod tests {
    use wirecost_model::observe::{FunctionShare, FunctionsSection, LayerShare, Observation};

    fn section() -> FunctionsSection {
        let layer = |name: &str, share: f64, cycles| LayerShare {
            layer: name.to_owned(),
            share,
            interval: (share - 0.012, share + 0.014),
            cycles_per_kbyte: cycles,
        };
        let function = |name: &str, layer: &str, exclusive: f64, inclusive: f64| FunctionShare {
            name: name.to_owned(),
            layer: layer.to_owned(),
            module: "kernel".to_owned(),
            exclusive,
            inclusive,
            interval: (exclusive - 0.01, exclusive + 0.01),
            cycles_per_kbyte: Some(exclusive * 800.0),
        };
        FunctionsSection {
            hz: 99,
            samples: 1980,
            kernel_samples: 1900,
            user_samples: 80,
            expected_samples: Some(1_000),
            hidden_samples: Some(130),
            blocks: Some(20),
            lost: 0,
            layers: vec![
                layer("copy", 0.412, Some(329.6)),
                layer("TCP/UDP", 0.2, Some(160.0)),
                layer("netfilter", 0.001, Some(0.8)),
            ],
            functions: vec![
                function("_copy_from_iter", "copy", 0.3, 0.31),
                function(
                    "core::ptr::drop_in_place<alloc::vec::Vec<u8>>",
                    "application",
                    0.02,
                    0.02,
                ),
                function("do_syscall_64", "syscall entry", 0.0, 0.95),
            ],
            unmapped: Some(0.004),
            unmapped_functions: vec!["odd_function".to_owned()],
            ..FunctionsSection::default()
        }
    }

    fn shown(section: &FunctionsSection, width: usize) -> String {
        super::super::shown(section.document(), width)
    }

    #[test]
    fn tables() {
        insta::assert_snapshot!("functions_80", shown(&section(), 80));
        insta::assert_snapshot!("functions_120", shown(&section(), 120));
        insta::assert_snapshot!("functions_none", shown(&FunctionsSection::default(), 80));
    }

    #[test]
    fn lines_fit_and_what_is_not_known_is_not_shown() {
        let mut unknown = section();
        unknown.divide_cost(None);
        unknown.functions[0].name = "f\u{e9}e".to_owned();
        for width in 80..140 {
            let text = shown(&unknown, width);
            assert!(text.is_ascii() && !text.contains("KByte"));
            assert!(text.lines().all(|line| line.len() <= width), "{text}");
        }
    }
}
