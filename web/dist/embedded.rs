// Written by web/build.mjs: all files beside this one.
&[
    Asset::new("/assets/chat.css", "text/css; charset=utf-8", include_bytes!("assets/chat.css"), "\"50d9c01c9940e732\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/chat.css.br"), "\"50d9c01c9940e732-br\""), Encoded::new("gzip", include_bytes!("assets/chat.css.gz"), "\"50d9c01c9940e732-gzip\"")]),
    Asset::new("/assets/chat.js", "text/javascript; charset=utf-8", include_bytes!("assets/chat.js"), "\"f5eb92b934284c9f\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/chat.js.br"), "\"f5eb92b934284c9f-br\""), Encoded::new("gzip", include_bytes!("assets/chat.js.gz"), "\"f5eb92b934284c9f-gzip\"")]),
    Asset::new("/assets/comet.svg", "image/svg+xml", include_bytes!("assets/comet.svg"), "\"60e855a2ba434f21\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/comet.svg.br"), "\"60e855a2ba434f21-br\""), Encoded::new("gzip", include_bytes!("assets/comet.svg.gz"), "\"60e855a2ba434f21-gzip\"")]),
    Asset::new("/assets/encke.css", "text/css; charset=utf-8", include_bytes!("assets/encke.css"), "\"b881c7ff1c01303e\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/encke.css.br"), "\"b881c7ff1c01303e-br\""), Encoded::new("gzip", include_bytes!("assets/encke.css.gz"), "\"b881c7ff1c01303e-gzip\"")]),
    Asset::new("/assets/start.css", "text/css; charset=utf-8", include_bytes!("assets/start.css"), "\"e3a09dee51c77d16\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/start.css.br"), "\"e3a09dee51c77d16-br\""), Encoded::new("gzip", include_bytes!("assets/start.css.gz"), "\"e3a09dee51c77d16-gzip\"")]),
    Asset::new("/assets/start.js", "text/javascript; charset=utf-8", include_bytes!("assets/start.js"), "\"ab9ed36dcf990386\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/start.js.br"), "\"ab9ed36dcf990386-br\""), Encoded::new("gzip", include_bytes!("assets/start.js.gz"), "\"ab9ed36dcf990386-gzip\"")]),
    Asset::new("/assets/timer.js", "text/javascript; charset=utf-8", include_bytes!("assets/timer.js"), "\"218eab2e2c1599b1\""),
    Asset::new("/demo/chat", "text/html; charset=utf-8", include_bytes!("demo/chat/index.html"), "\"16ae80a07ad3aa40\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/chat/index.html.br"), "\"16ae80a07ad3aa40-br\""), Encoded::new("gzip", include_bytes!("demo/chat/index.html.gz"), "\"16ae80a07ad3aa40-gzip\"")]),
    Asset::new("/demo/chat/", "text/html; charset=utf-8", include_bytes!("demo/chat/index.html"), "\"16ae80a07ad3aa40\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/chat/index.html.br"), "\"16ae80a07ad3aa40-br\""), Encoded::new("gzip", include_bytes!("demo/chat/index.html.gz"), "\"16ae80a07ad3aa40-gzip\"")]),
    Asset::new("/", "text/html; charset=utf-8", include_bytes!("index.html"), "\"25f25fb46801046f\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("index.html.br"), "\"25f25fb46801046f-br\""), Encoded::new("gzip", include_bytes!("index.html.gz"), "\"25f25fb46801046f-gzip\"")]),
]
