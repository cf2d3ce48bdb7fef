//! Tests of each engine.

/// The names of all engines.
pub(crate) fn names() -> impl Iterator<Item = &'static str> + Clone {
    wirecost_load::engines::ALL.iter().map(|engine| engine.name())
}

/// Those whose workers run many strands.
pub(crate) fn event_loops() -> impl Iterator<Item = &'static str> {
    let all = wirecost_load::engines::ALL.iter();
    all.filter(|engine| engine.shares_threads()).map(|engine| engine.name())
}

/// Makes a module for each engine, with a test for each line: `NAME: FUNCTION(ARGUMENTS);`. The function's
/// last argument is the engine.
macro_rules! on_every_engine {
    ($tests:tt) => {
        on_every_engine!([epoll io_uring poll threads] $tests);
    };
    ([$($engine:ident)*] $tests:tt) => {
        #[test]
        fn every_engine_is_tested() {
            let tested = [$(stringify!($engine)),*];
            let all: std::collections::BTreeSet<_> = crate::engines::names().collect();
            assert_eq!(std::collections::BTreeSet::from(tested), all);
        }

        $(on_every_engine!(@ $engine $tests);)*
    };
    (@ $engine:ident { $($test:ident: $function:ident($($argument:expr),*);)* }) => {
        mod $engine {
            $(
                #[test]
                fn $test() {
                    super::$function($($argument,)* stringify!($engine));
                }
            )*
        }
    };
}
