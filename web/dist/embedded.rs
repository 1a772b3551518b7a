// Written by web/build.mjs: all files beside this one.
&[
    Asset::new("/assets/chat.css", "text/css; charset=utf-8", include_bytes!("assets/chat.css"), "\"50d9c01c9940e732\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/chat.css.br"), "\"50d9c01c9940e732-br\""), Encoded::new("gzip", include_bytes!("assets/chat.css.gz"), "\"50d9c01c9940e732-gzip\"")]),
    Asset::new("/assets/chat.js", "text/javascript; charset=utf-8", include_bytes!("assets/chat.js"), "\"11be5e53e93ff5c3\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/chat.js.br"), "\"11be5e53e93ff5c3-br\""), Encoded::new("gzip", include_bytes!("assets/chat.js.gz"), "\"11be5e53e93ff5c3-gzip\"")]),
    Asset::new("/assets/comet.svg", "image/svg+xml", include_bytes!("assets/comet.svg"), "\"60e855a2ba434f21\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/comet.svg.br"), "\"60e855a2ba434f21-br\""), Encoded::new("gzip", include_bytes!("assets/comet.svg.gz"), "\"60e855a2ba434f21-gzip\"")]),
    Asset::new("/assets/encke.css", "text/css; charset=utf-8", include_bytes!("assets/encke.css"), "\"02d56ad073e362f1\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/encke.css.br"), "\"02d56ad073e362f1-br\""), Encoded::new("gzip", include_bytes!("assets/encke.css.gz"), "\"02d56ad073e362f1-gzip\"")]),
    Asset::new("/assets/menu.js", "text/javascript; charset=utf-8", include_bytes!("assets/menu.js"), "\"85f4a5a76e8738c5\""),
    Asset::new("/assets/screenpush-watch.js", "text/javascript; charset=utf-8", include_bytes!("assets/screenpush-watch.js"), "\"e6750fe441a023d6\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/screenpush-watch.js.br"), "\"e6750fe441a023d6-br\""), Encoded::new("gzip", include_bytes!("assets/screenpush-watch.js.gz"), "\"e6750fe441a023d6-gzip\"")]),
    Asset::new("/assets/screenpush.css", "text/css; charset=utf-8", include_bytes!("assets/screenpush.css"), "\"eb400210c0d471d0\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/screenpush.css.br"), "\"eb400210c0d471d0-br\""), Encoded::new("gzip", include_bytes!("assets/screenpush.css.gz"), "\"eb400210c0d471d0-gzip\"")]),
    Asset::new("/assets/screenpush.js", "text/javascript; charset=utf-8", include_bytes!("assets/screenpush.js"), "\"325249f5e2af5288\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/screenpush.js.br"), "\"325249f5e2af5288-br\""), Encoded::new("gzip", include_bytes!("assets/screenpush.js.gz"), "\"325249f5e2af5288-gzip\"")]),
    Asset::new("/assets/slides-pdf.lazy.js", "text/javascript; charset=utf-8", include_bytes!("assets/slides-pdf.lazy.js"), "\"6063a92461c2c1f6\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/slides-pdf.lazy.js.br"), "\"6063a92461c2c1f6-br\""), Encoded::new("gzip", include_bytes!("assets/slides-pdf.lazy.js.gz"), "\"6063a92461c2c1f6-gzip\"")]),
    Asset::new("/assets/slides-pdf.worker.js", "text/javascript; charset=utf-8", include_bytes!("assets/slides-pdf.worker.js"), "\"064dad37f342c29f\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/slides-pdf.worker.js.br"), "\"064dad37f342c29f-br\""), Encoded::new("gzip", include_bytes!("assets/slides-pdf.worker.js.gz"), "\"064dad37f342c29f-gzip\"")]),
    Asset::new("/assets/slides-watch.js", "text/javascript; charset=utf-8", include_bytes!("assets/slides-watch.js"), "\"23bd961663f06a4d\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/slides-watch.js.br"), "\"23bd961663f06a4d-br\""), Encoded::new("gzip", include_bytes!("assets/slides-watch.js.gz"), "\"23bd961663f06a4d-gzip\"")]),
    Asset::new("/assets/slides.css", "text/css; charset=utf-8", include_bytes!("assets/slides.css"), "\"a85174d317e9bd63\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/slides.css.br"), "\"a85174d317e9bd63-br\""), Encoded::new("gzip", include_bytes!("assets/slides.css.gz"), "\"a85174d317e9bd63-gzip\"")]),
    Asset::new("/assets/slides.js", "text/javascript; charset=utf-8", include_bytes!("assets/slides.js"), "\"65fb35ab066ed6aa\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/slides.js.br"), "\"65fb35ab066ed6aa-br\""), Encoded::new("gzip", include_bytes!("assets/slides.js.gz"), "\"65fb35ab066ed6aa-gzip\"")]),
    Asset::new("/assets/start.css", "text/css; charset=utf-8", include_bytes!("assets/start.css"), "\"e3a09dee51c77d16\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/start.css.br"), "\"e3a09dee51c77d16-br\""), Encoded::new("gzip", include_bytes!("assets/start.css.gz"), "\"e3a09dee51c77d16-gzip\"")]),
    Asset::new("/assets/start.js", "text/javascript; charset=utf-8", include_bytes!("assets/start.js"), "\"868f68035923e553\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/start.js.br"), "\"868f68035923e553-br\""), Encoded::new("gzip", include_bytes!("assets/start.js.gz"), "\"868f68035923e553-gzip\"")]),
    Asset::new("/assets/timer.js", "text/javascript; charset=utf-8", include_bytes!("assets/timer.js"), "\"218eab2e2c1599b1\""),
    Asset::new("/demo/chat", "text/html; charset=utf-8", include_bytes!("demo/chat/index.html"), "\"4aa08b22482fe531\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/chat/index.html.br"), "\"4aa08b22482fe531-br\""), Encoded::new("gzip", include_bytes!("demo/chat/index.html.gz"), "\"4aa08b22482fe531-gzip\"")]),
    Asset::new("/demo/chat/", "text/html; charset=utf-8", include_bytes!("demo/chat/index.html"), "\"4aa08b22482fe531\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/chat/index.html.br"), "\"4aa08b22482fe531-br\""), Encoded::new("gzip", include_bytes!("demo/chat/index.html.gz"), "\"4aa08b22482fe531-gzip\"")]),
    Asset::new("/demo/screenpush", "text/html; charset=utf-8", include_bytes!("demo/screenpush/index.html"), "\"29976931bfe4dd33\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; connect-src 'self' http: https: ws: wss:")
        .encoded(&[Encoded::new("br", include_bytes!("demo/screenpush/index.html.br"), "\"29976931bfe4dd33-br\""), Encoded::new("gzip", include_bytes!("demo/screenpush/index.html.gz"), "\"29976931bfe4dd33-gzip\"")]),
    Asset::new("/demo/screenpush/", "text/html; charset=utf-8", include_bytes!("demo/screenpush/index.html"), "\"29976931bfe4dd33\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; connect-src 'self' http: https: ws: wss:")
        .encoded(&[Encoded::new("br", include_bytes!("demo/screenpush/index.html.br"), "\"29976931bfe4dd33-br\""), Encoded::new("gzip", include_bytes!("demo/screenpush/index.html.gz"), "\"29976931bfe4dd33-gzip\"")]),
    Asset::new("/demo/screenpush/watch", "text/html; charset=utf-8", include_bytes!("demo/screenpush/watch/index.html"), "\"5aff470c552b342a\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; connect-src 'self' http: https: ws: wss:")
        .encoded(&[Encoded::new("br", include_bytes!("demo/screenpush/watch/index.html.br"), "\"5aff470c552b342a-br\""), Encoded::new("gzip", include_bytes!("demo/screenpush/watch/index.html.gz"), "\"5aff470c552b342a-gzip\"")]),
    Asset::new("/demo/screenpush/watch/", "text/html; charset=utf-8", include_bytes!("demo/screenpush/watch/index.html"), "\"5aff470c552b342a\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; connect-src 'self' http: https: ws: wss:")
        .encoded(&[Encoded::new("br", include_bytes!("demo/screenpush/watch/index.html.br"), "\"5aff470c552b342a-br\""), Encoded::new("gzip", include_bytes!("demo/screenpush/watch/index.html.gz"), "\"5aff470c552b342a-gzip\"")]),
    Asset::new("/demo/slides", "text/html; charset=utf-8", include_bytes!("demo/slides/index.html"), "\"bd8710a992cea285\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/slides/index.html.br"), "\"bd8710a992cea285-br\""), Encoded::new("gzip", include_bytes!("demo/slides/index.html.gz"), "\"bd8710a992cea285-gzip\"")]),
    Asset::new("/demo/slides/", "text/html; charset=utf-8", include_bytes!("demo/slides/index.html"), "\"bd8710a992cea285\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/slides/index.html.br"), "\"bd8710a992cea285-br\""), Encoded::new("gzip", include_bytes!("demo/slides/index.html.gz"), "\"bd8710a992cea285-gzip\"")]),
    Asset::new("/demo/slides/watch", "text/html; charset=utf-8", include_bytes!("demo/slides/watch/index.html"), "\"7c705ca2b5006630\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/slides/watch/index.html.br"), "\"7c705ca2b5006630-br\""), Encoded::new("gzip", include_bytes!("demo/slides/watch/index.html.gz"), "\"7c705ca2b5006630-gzip\"")]),
    Asset::new("/demo/slides/watch/", "text/html; charset=utf-8", include_bytes!("demo/slides/watch/index.html"), "\"7c705ca2b5006630\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/slides/watch/index.html.br"), "\"7c705ca2b5006630-br\""), Encoded::new("gzip", include_bytes!("demo/slides/watch/index.html.gz"), "\"7c705ca2b5006630-gzip\"")]),
    Asset::new("/", "text/html; charset=utf-8", include_bytes!("index.html"), "\"86e348f97a1fe9e4\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("index.html.br"), "\"86e348f97a1fe9e4-br\""), Encoded::new("gzip", include_bytes!("index.html.gz"), "\"86e348f97a1fe9e4-gzip\"")]),
]
