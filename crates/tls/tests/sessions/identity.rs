//! Which name in a certificate is the identity.

use testkit::certificates::Says;
use tls::{ClientCa, Config};

use crate::pair::{FILES, Pair, VERSIONS, certificate, client};

/// What a server that trusts `root` makes of a client that `by` vouches for; `None` if its handshake fails.
fn identity_under(root: &str, by: &str, subject: &str, names: &str) -> Option<Result<String, String>> {
    let name = "constrained-client";
    let extensions = format!("extendedKeyUsage=clientAuth{names}");
    FILES.issue(name, Says { subject, extensions: &extensions, by, ..Says::default() });
    let chain =
        [format!("{name}.pem"), format!("{by}.pem")].map(|file| std::fs::read(FILES.path(&file)).unwrap());
    std::fs::write(FILES.path(&format!("{name}.pem")), chain.concat()).unwrap();
    let authorities = ClientCa::load(&FILES.path(&format!("{root}.pem"))).unwrap();
    let config = Config::new(&certificate("server"), Some(&authorities)).unwrap();
    // Also where the session is resumed.
    let client = client(VERSIONS[1], Some(name));
    let mut found = Vec::new();
    for _ in 0..2 {
        let mut pair = Pair::new(&client, &config);
        pair.exchange().ok()?;
        let identity = pair.server.identity();
        found.push(identity.map(|name| name.unwrap().to_string()).map_err(|fault| fault.to_string()));
    }
    assert_eq!(found[0], found[1]);
    found.pop()
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_common_name_does_not_count_below_an_authority_that_may_vouch_for_some_names_only() {
    let authority = |name: &str, subject: &str, more: &str| {
        let extensions = format!("basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign{more}");
        FILES.issue(name, Says { subject, extensions: &extensions, ..Says::default() });
    };
    authority("free", "/CN=free", "");
    authority("team", "/CN=team", "\nnameConstraints=critical,permitted;DNS:team.example");
    // The constraint does its work for what it binds: a DNS name.
    let own = identity_under("ca", "team", "/CN=admin.svc", "\nsubjectAltName=DNS:a.team.example");
    assert_eq!(own, Some(Ok("a.team.example".to_owned())));
    assert_eq!(identity_under("ca", "team", "/", "\nsubjectAltName=DNS:admin.svc"), None);
    // The intermediate authority, or the root itself, or one above.
    for root in ["ca", "team"] {
        let forged = identity_under(root, "team", "/CN=admin.svc", "").unwrap().unwrap_err();
        assert!(forged.contains("nameConstraints"), "{root}: {forged}");
        let forged = identity_under(root, "team", "/CN=admin.svc", "\nsubjectAltName=IP:10.0.0.1").unwrap();
        assert!(forged.is_err(), "{root}: {forged:?}");
    }
    assert_eq!(identity_under("ca", "team", "/", ""), Some(Ok(String::new())));
    assert_eq!(identity_under("ca", "free", "/CN=admin.svc", ""), Some(Ok("admin.svc".to_owned())));
    // As README says: a DNS constraint leaves URIs free.
    let uri = identity_under("ca", "team", "/", "\nsubjectAltName=URI:spiffe://other/admin");
    assert_eq!(uri, Some(Ok("spiffe://other/admin".to_owned())));
    authority("uri", "/CN=uri", "\nnameConstraints=critical,permitted;URI:team.example");
    for uri in ["spiffe://team.example/a", "spiffe://other/admin"] {
        assert_eq!(identity_under("ca", "uri", "/", &format!("\nsubjectAltName=URI:{uri}")), None, "{uri}");
    }
}
