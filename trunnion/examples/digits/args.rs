//! The command line: what may be given, what is valid, and the defaults.

use std::path::PathBuf;

use clap::Parser;

use super::reference;

/// Trains a small network (64-128-10) to read handwritten digits, on any backend.
#[derive(Debug, Parser)]
#[command(name = "digits", version)]
pub struct Args {
    /// The backend to train on; if not given, what TRUNNION_BACKEND says, else trunnion.toml, else the best there is
    #[arg(long, value_name = "NAME", value_parser = backend)]
    pub backend: Option<String>,

    /// How often to go through the training rows, from 1 to 1000
    #[arg(long, value_name = "N", default_value_t = reference::EPOCHS, value_parser = epochs, allow_negative_numbers = true)]
    pub epochs: u32,

    /// Seed of the first weights and of the order of the rows, any 64-bit unsigned number
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    pub seed: u64,

    /// Directory for the picture `digits.png`; made if it does not exist
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,
}

fn backend(text: &str) -> Result<String, String> {
    // Whether such a device can be opened shows when it is; a name that no backend has is a bad argument.
    let names: Vec<_> = trunnion::backends().iter().map(|backend| backend.name().to_string()).collect();
    match trunnion::Device::parse(text) {
        Ok(device) if names.iter().any(|name| name == device.backend()) => Ok(text.into()),
        _ => Err(format!("valid is {}, or one of them with `:` and a device's number or name", names.join(", "))),
    }
}

fn epochs(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(epochs @ 1..=1000) => Ok(epochs),
        _ => Err("valid is a whole number from 1 to 1000".into()),
    }
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("valid is a whole number from 0 to {}", u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["digits"].iter().chain(args))
    }

    #[test]
    fn without_arguments_the_defaults_hold() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.backend, None);
        assert_eq!(args.epochs, reference::EPOCHS);
        assert_eq!((args.seed, args.out), (1, PathBuf::from("out")));
    }

    #[test]
    fn the_limits_of_each_number_are_accepted() {
        let args = parse(&["--epochs", "1", "--seed", "18446744073709551615"]).unwrap();
        assert_eq!((args.epochs, args.seed), (1, u64::MAX));
        assert_eq!(parse(&["--epochs", "1000"]).unwrap().epochs, 1000);
    }

    #[test]
    fn a_bad_value_is_refused_with_code_2_and_the_valid_ones_are_named() {
        for (option, value, valid) in [
            ("--epochs", "0", "from 1 to 1000"),
            ("--epochs", "1001", "from 1 to 1000"),
            ("--epochs", "-3", "from 1 to 1000"),
            ("--epochs", "many", "from 1 to 1000"),
            ("--seed", "-1", "from 0 to 18446744073709551615"),
            ("--seed", "18446744073709551616", "from 0 to 18446744073709551615"),
            ("--backend", "abacus", "valid is host"),
        ] {
            let error = parse(&[option, value]).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{option} {value}");
            let text = error.to_string();
            assert!(text.contains(valid) && text.contains(value), "{text}");
        }
    }
}
