//! Where the server is.

/// Checks what looks like `host:port`. Whether the host exists is found out when it is dialled.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    let Some((host, port)) = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()) else {
        return Err("a host and a port are expected, as in 127.0.0.1:7070".into());
    };
    if host.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err("a host has no white space".into());
    }
    match port.parse::<u16>() {
        Ok(1..) => Ok(text.to_owned()),
        Ok(0) | Err(_) => Err("the port must be a number from 1 to 65535".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["127.0.0.1:7070", "[::1]:1", "lock.example:65535", "localhost:07"] {
            assert_eq!(parse(good).as_deref(), Ok(good));
        }
        for bad in
            ["", ":", ":7070", "localhost", "localhost:", "localhost:0", "a:65536", "a:-1", "a b:1", "a\n:1"]
        {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
