//! Where the admin API is: the flag beats the variable, which is the server's own.

use super::problem::Problem;
use crate::settings::ADMIN_LISTEN;
use cli::AdminAddress;

/// The address to connect to.
pub(super) fn resolve(
    flag: Option<&AdminAddress>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<AdminAddress, Problem> {
    let name = ADMIN_LISTEN.flag.variable;
    let address = match (flag, variable(name).filter(|value| !value.is_empty())) {
        (Some(address), _) => address.clone(),
        (None, Some(value)) => value
            .parse()
            .map_err(|problem| Problem::Usage(format!("{name}: invalid value {value:?}: {problem}")))?,
        (None, None) => {
            return Err(Problem::Usage(format!(
                "where is the admin API? Give --admin ADDRESS, the server's -admin-listen, or set {name}"
            )));
        }
    };
    Ok(match address {
        AdminAddress::Tcp(address) => AdminAddress::Tcp(address.to_dial()),
        unix @ AdminAddress::Unix(_) => unix,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(flag: &str, variable: &str) -> Result<String, String> {
        let flag: Option<AdminAddress> = (!flag.is_empty()).then(|| flag.parse().unwrap());
        let asked = |name: &str| {
            assert_eq!(name, "MONOLOCK_ADMIN_LISTEN_ADDRESS");
            Some(variable.to_owned())
        };
        match resolve(flag.as_ref(), asked) {
            Ok(address) => Ok(address.to_string()),
            Err(problem) => {
                assert_eq!(problem.exit_status(), 64);
                Err(problem.to_string())
            }
        }
    }

    #[test]
    fn the_flag_beats_the_servers_own_variable_and_an_empty_variable_is_unset() {
        assert_eq!(resolved("a:1", "b:2").as_deref(), Ok("a:1"));
        assert_eq!(resolved("", "b:2").as_deref(), Ok("b:2"));
        assert_eq!(resolved("unix:/a", "").as_deref(), Ok("unix:/a"));
        let problem = resolved("", "").unwrap_err();
        assert!(
            problem.contains("--admin") && problem.contains("MONOLOCK_ADMIN_LISTEN_ADDRESS"),
            "{problem}"
        );
        let problem = resolved("", "nowhere").unwrap_err();
        assert!(
            problem.starts_with("MONOLOCK_ADMIN_LISTEN_ADDRESS: invalid value \"nowhere\": "),
            "{problem}"
        );
    }

    #[test]
    fn every_address_of_a_server_is_reached_as_localhost() {
        for all in [":9091", "0.0.0.0:9091", "[::]:9091"] {
            assert_eq!(resolved(all, "").as_deref(), Ok("localhost:9091"));
        }
    }
}
