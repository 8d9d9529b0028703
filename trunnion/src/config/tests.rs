//! Tests of the whole way from text to settings.

use super::*;
use alloc::format;
use alloc::string::ToString;

fn merge(text: Option<&str>, variables: impl Iterator<Item = (String, String)>) -> Result<Config, ConfigError> {
    Config::merge(text.map(|text| ("t.toml", text)), variables, &[String::from("host")])
}

fn from_file(text: &str) -> Result<Config, ConfigError> {
    merge(Some(text), core::iter::empty())
}

fn variables(variables: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
    variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect::<Vec<_>>().into_iter()
}

fn from_variables(list: &[(&str, &str)]) -> Result<Config, ConfigError> {
    merge(None, variables(list))
}

/// What a configuration says, key by key.
fn shown(config: &Config) -> [String; 14] {
    let settings = config.settings("host");
    let executor = &settings.executor;
    [
        format!("{:?}", config.device().map(Device::to_string)),
        format!("{:?}", settings.bounds),
        format!("{:?}", settings.drop_timeout),
        format!("{:?}", settings.open.dry_run),
        format!("{:?}", executor.execution),
        format!("{:?}", settings.open.kernel_cache),
        config.server_layers().to_string(),
        format!("{:?}", settings.open.memory_budget),
        settings.open.memory_pools.to_string(),
        format!("{:?}", config.memory_trace_file()),
        format!("{:?}", executor.ring_bytes),
        format!("{:?}", executor.spin),
        format!("{:?}", settings.staging_limit),
        format!("{:?}", settings.wait_timeout),
    ]
}

/// For each key: values that are valid with what they come to, and values that are not.
type Case = (&'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);
const CASES: [Case; 14] = [
    (
        "backend",
        &[
            ("host", "Some(\"host\")"),
            ("host:2", "Some(\"host:2\")"),
            ("vulkan:llvm", "Some(\"vulkan:llvm\")"),
            ("0", "None"),
        ],
        &[":1", "host:", " "],
    ),
    (
        "bounds",
        &[("auto", "Auto"), ("enforce", "Enforce"), ("validate", "Validate"), ("0", "Auto"), ("off", "Auto")],
        &["1", "Auto", "strict"],
    ),
    ("drop_timeout", &[("2s", "2s"), ("0", "0ns"), ("0ms", "0ns"), ("off", "0ns")], &["2", "fast", "-1s"]),
    (
        "dry_run",
        &[("true", "true"), ("on", "true"), ("1", "true"), ("0", "false"), ("off", "false"), ("false", "false")],
        &["yes", "2", "zeros"],
    ),
    ("execution", &[("runner", "Runner"), ("inline", "Inline")], &["0", "thread", "false"]),
    (
        "kernel_cache",
        &[
            ("/tmp/k", "Some(\"/tmp/k\")"),
            ("0", "None"),
            ("off", "None"),
            ("false", "None"),
            ("./off", "Some(\"./off\")"),
        ],
        &[],
    ),
    (
        "layers",
        &[
            ("validate", "validate"),
            (
                "validate,fault=launch:3:lost,delay=200us,reorder=7",
                "validate,fault=launch:3:lost,delay=200us,reorder=7",
            ),
            ("fault=1:oom, validate", "fault=1:oom,validate"),
            ("0", "0"),
            ("off", "0"),
        ],
        &["1", "valdiate", "validate,", "fault=lunch:3:lost", "delay=200", "reorder=-1", "validate,0"],
    ),
    (
        "memory_budget",
        &[("4096", "Some(4096)"), ("512MiB", "Some(536870912)"), ("0", "None"), ("0GiB", "None"), ("off", "None")],
        &["512MB", "-1", "lots", "16777216TiB"],
    ),
    (
        "memory_pools",
        &[
            ("adaptive", "general: fit"),
            ("exclusive", "exclusive: exclusive"),
            ("fixed:64KiB", "general: fit"),
            ("0", "general: fit"),
            ("off", "general: fit"),
        ],
        &["slab", "fixed", "fixed:", "fixed:0", "fixed:64KB", "adaptive:1"],
    ),
    (
        "memory_trace",
        &[
            ("run.trace", "Some(\"run.trace\")"),
            ("./0", "Some(\"./0\")"),
            ("0", "None"),
            ("off", "None"),
            ("false", "None"),
        ],
        &[],
    ),
    ("ring", &[("256KiB", "262144"), ("4096", "4096"), ("1MiB", "1048576")], &["0", "4095", "off", "2GiB", "ring"]),
    ("spin", &[("50us", "50µs"), ("0", "0ns"), ("off", "0ns")], &["50", "50ns"]),
    (
        "staging_limit",
        &[("4096", "Some(4096)"), ("1GiB", "Some(1073741824)"), ("0", "None"), ("off", "None")],
        &["1GB", "-1", "true"],
    ),
    ("wait_timeout", &[("30s", "30s"), ("500ms", "500ms")], &["0", "0s", "off", "30", "1h"]),
];

#[test]
fn every_key_takes_its_values_from_variables_and_files_alike() {
    for (index, (key, good, _)) in CASES.into_iter().enumerate() {
        assert_eq!(keys::NAMES[index], key);
        for (text, meaning) in good {
            let by_variable = from_variables(&[(&format!("TRUNNION_{}", key.to_uppercase()), text)]).unwrap();
            let by_file = from_file(&format!("{key} = '{text}'")).unwrap();
            for config in [by_variable, by_file] {
                assert_eq!(shown(&config)[index], *meaning, "{key} = {text}");
                let others = |config: &Config| {
                    shown(config).into_iter().enumerate().filter(|(i, _)| *i != index).collect::<Vec<_>>()
                };
                assert_eq!(others(&config), others(&Config::new()), "{key} = {text}");
            }
        }
    }
}

#[test]
fn every_value_that_is_not_valid_is_named_with_what_is() {
    for (key, _, bad) in CASES {
        for text in bad {
            let variable = format!("TRUNNION_{}", key.to_uppercase());
            let error = from_variables(&[(&variable, text)]).unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("environment: `{variable}` cannot be `{text}`; valid: ")),
                "{error}"
            );
            let ConfigError::BadValue { origin, key: named, value, valid } = error else { panic!("bad value") };
            assert_eq!((origin, named, value.as_str()), (Origin::Environment, variable, *text));
            assert!(!valid.is_empty());

            let error = from_file(&format!("\n{key} = '{text}'")).unwrap_err().to_string();
            assert!(error.starts_with(&format!("t.toml:2: `{key}` cannot be `{text}`; valid: ")), "{error}");
        }
    }
    let error = from_variables(&[("TRUNNION_LAYERS", "validate,fault=1:gone")]).unwrap_err().to_string();
    assert!(error.contains("layer `fault=1:gone`: there is no kind `gone`; valid: oom, refused"), "{error}");
    let error = from_file("kernel_cache = ''").unwrap_err().to_string();
    assert!(error.contains("a directory, or 0 for none"), "{error}");
    let error = from_file("memory_trace = ''").unwrap_err().to_string();
    assert!(error.contains("a file, or 0 for none"), "{error}");
}

#[test]
fn numbers_and_booleans_of_a_file_need_no_quotes() {
    let config = from_file(
        "memory_budget = 65536\nring = 0x4000\nkernel_cache = false\ndrop_timeout = 0\nspin = 0\nbounds = 0\nbackend = 0\n",
    );
    let settings = config.unwrap().settings("host");
    assert_eq!((settings.open.memory_budget, settings.executor.ring_bytes), (Some(65536), 0x4000));
    for bad in ["wait_timeout = 30", "ring = 1.5", "ring = -4096", "memory_budget = true", "execution = 1"] {
        assert!(matches!(from_file(bad), Err(ConfigError::BadValue { .. })), "{bad}");
    }
}

#[test]
fn the_builder_counts_before_the_environment_that_before_the_file_that_before_the_defaults() {
    let file = "backend = 'file'\nring = '8KiB'\nspin = '1us'\n[host]\ndevices = 2\nthreads = 2\nrow_pitch = 2\n";
    let list = [
        ("TRUNNION_BACKEND", "env"),
        ("TRUNNION_RING", "16KiB"),
        ("TRUNNION_HOST_THREADS", "3"),
        ("TRUNNION_HOST_DEVICES", "3"),
    ];
    let config = merge(Some(file), variables(&list)).unwrap();
    let config = config.backend(Device::best("built")).option("host", "devices", "4");
    let settings = config.settings("host");
    assert_eq!(config.device(), Some(&Device::best("built")));
    assert_eq!(settings.executor.ring_bytes, 16 << 10);
    assert_eq!(settings.executor.spin, Duration::from_micros(1));
    assert_eq!(settings.wait_timeout, Duration::from_secs(30));
    let options = [("devices", "4"), ("row_pitch", "2"), ("threads", "3")]
        .map(|(name, value)| (name.to_string(), value.to_string()));
    assert_eq!(settings.open.options, options.into());
}

#[test]
fn a_variable_set_to_0_turns_off_what_the_file_says() {
    let file = "backend = 'vulkan'\nmemory_budget = '1GiB'\nkernel_cache = 'cache'\nbounds = 'validate'\nspin = '1ms'\ndrop_timeout = '9s'\nlayers = 'validate'\ndry_run = true\nmemory_trace = 'a'\nstaging_limit = '1MiB'";
    let names = ["BACKEND", "MEMORY_BUDGET", "KERNEL_CACHE", "BOUNDS", "SPIN", "DROP_TIMEOUT", "LAYERS"];
    let names = names.into_iter().chain(["DRY_RUN", "MEMORY_TRACE", "STAGING_LIMIT"]);
    let off = names.map(|name| (format!("TRUNNION_{name}"), "0".to_string()));
    let config = merge(Some(file), off).unwrap();
    let shown = shown(&config);
    let expected = ["None", "Auto", "0ns", "false", "None", "0", "None", "None", "0ns", "None"];
    assert_eq!([0, 1, 2, 3, 5, 6, 7, 9, 11, 12].map(|i| shown[i].as_str()), expected);
}

#[test]
fn an_empty_variable_is_as_good_as_none_and_other_peoples_are_passed_over() {
    let list = [
        ("TRUNNION_RING", ""),
        ("TRUNNION_BACKEND", ""),
        ("PATH", "/bin"),
        ("TRUNNIONS", "1"),
        ("TRUNNION_REQUIRE", "host"),
        ("TRUNNION_CUDA_DRIVER", "double"),
        ("TRUNNION_CUDA_COMPILERS", "/opt/cuda"),
        ("TRUNNION_CONFIG", "x"),
    ];
    assert_eq!(shown(&from_variables(&list).unwrap()), shown(&Config::new()));
}

#[test]
fn an_unknown_variable_lists_the_known_ones_and_the_one_that_was_meant() {
    let error = from_variables(&[("TRUNNION_RINGS", "1")]).unwrap_err();
    let ConfigError::UnknownKey { origin: Origin::Environment, key, known, near } = error else {
        panic!("unknown key")
    };
    assert_eq!((key.as_str(), near.as_deref()), ("TRUNNION_RINGS", Some("TRUNNION_RING")));
    for name in keys::NAMES {
        assert!(known.contains(&format!("TRUNNION_{}", name.to_uppercase())), "{name}");
    }
    assert!(known.contains(&"TRUNNION_CONFIG".to_string()) && known.contains(&"TRUNNION_REQUIRE".to_string()));
    let error = from_variables(&[("TRUNNION_COLOUR", "1")]).unwrap_err();
    assert!(matches!(error, ConfigError::UnknownKey { near: None, .. }), "{error}");
}

#[test]
fn settings_of_one_backend_hold_no_options_of_another() {
    let config = Config::new().option("Host", "devices", "2").option("other", "clock", "1");
    assert_eq!(config.settings("host").open.options.len(), 1);
    assert_eq!(config.settings("HOST").open.options.len(), 1);
    assert_eq!(config.settings("other").open.options["clock"], "1");
    assert!(config.settings("third").open.options.is_empty());
}

#[test]
fn the_builder_sets_each_setting() {
    let config = Config::new()
        .backend(Device::index("host", 1))
        .memory_budget(1 << 20)
        .memory_pools(PoolLayout::exclusive())
        .dry_run(true)
        .staging_limit(1 << 12)
        .memory_trace("trace")
        .kernel_cache("cache")
        .wait_timeout(Duration::from_secs(1))
        .drop_timeout(Duration::ZERO)
        .bounds(BoundsPolicy::Enforce)
        .execution(Execution::Inline)
        .layers("validate".parse().unwrap())
        .ring(1)
        .spin(Duration::ZERO);
    let expected = [
        "Some(\"host:1\")",
        "Enforce",
        "0ns",
        "true",
        "Inline",
        "Some(\"cache\")",
        "validate",
        "Some(1048576)",
        "exclusive: exclusive",
        "Some(\"trace\")",
        "4096",
        "0ns",
        "Some(4096)",
        "1s",
    ];
    assert_eq!(shown(&config), expected.map(String::from));
    assert_eq!(config.clone().ring(usize::MAX).settings("host").executor.ring_bytes, executor::Config::MAX_RING_BYTES);
    let fixed = from_variables(&[("TRUNNION_MEMORY_POOLS", "fixed:64KiB")]).unwrap();
    assert_eq!(fixed.settings("host").open.memory_pools, PoolLayout::fixed(64 << 10).unwrap());
    assert_eq!(config.memory_budget(None).settings("host").open.memory_budget, None);
}

#[test]
fn hostile_text_is_an_error_and_never_a_panic() {
    let deep = format!("host = {}", "[".repeat(20_000));
    let tables = format!("[{}]", ["a"; 5_000].join("."));
    let long = format!("{} = 1", "k".repeat(100_000));
    for text in [
        deep.as_str(),
        &tables,
        &long,
        "\u{0}",
        "ring = 99999999999999999999999999",
        "ring = nan",
        "[host",
        "é = 'é'",
        "\"\" = 1",
    ] {
        assert!(from_file(text).is_err(), "{}", &text[..text.len().min(20)]);
    }
    for name in ["TRUNNION_", "TRUNNION__", "TRUNNION_é", "TRUNNION_HOST", "TRUNNION_HOST_"] {
        assert!(from_variables(&[(name, "é")]).is_err(), "{name}");
    }
}

#[test]
fn options_are_kept_as_they_are_for_the_backend_to_judge() {
    let config = from_file("[host]\nnonsense = [1, 2]\n").unwrap();
    assert_eq!(config.settings("host").open.options["nonsense"], "1,2");
}

proptest::proptest! {
    #[test]
    fn any_text_gives_settings_or_an_error(
        file in r"((backend|bounds|drop_timeout|ring|spin|memory_budget|\[host\]|host\.a|[a-z]{1,6}) ?= ?[-+0-9a-zA-Z'\[\]{},. ]{0,12}\n){0,4}|\PC{0,40}",
        name in r"TRUNNION_(BACKEND|BOUNDS|LAYERS|RING|SPIN|MEMORY_BUDGET|HOST_[A-Z]{0,3}|\PC{0,6})",
        value in r"[0-9]{0,22}(KiB|MiB|TiB|us|s|\PC{0,4})",
    ) {
        if let Err(error) = merge(Some(&file), variables(&[(&name, &value)])) {
            proptest::prop_assert!(!error.to_string().is_empty());
        }
    }
}
