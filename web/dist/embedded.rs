// Written by web/build.mjs: all files beside this one.
&[
    Asset::new("/assets/chat.css", "text/css; charset=utf-8", include_bytes!("assets/chat.css"), "\"50d9c01c9940e732\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/chat.css.br"), "\"50d9c01c9940e732-br\""), Encoded::new("gzip", include_bytes!("assets/chat.css.gz"), "\"50d9c01c9940e732-gzip\"")]),
    Asset::new("/assets/chat.js", "text/javascript; charset=utf-8", include_bytes!("assets/chat.js"), "\"0f2e23e16b7f34eb\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/chat.js.br"), "\"0f2e23e16b7f34eb-br\""), Encoded::new("gzip", include_bytes!("assets/chat.js.gz"), "\"0f2e23e16b7f34eb-gzip\"")]),
    Asset::new("/assets/comet.svg", "image/svg+xml", include_bytes!("assets/comet.svg"), "\"60e855a2ba434f21\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/comet.svg.br"), "\"60e855a2ba434f21-br\""), Encoded::new("gzip", include_bytes!("assets/comet.svg.gz"), "\"60e855a2ba434f21-gzip\"")]),
    Asset::new("/assets/encke.css", "text/css; charset=utf-8", include_bytes!("assets/encke.css"), "\"5ebcc304846725e0\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/encke.css.br"), "\"5ebcc304846725e0-br\""), Encoded::new("gzip", include_bytes!("assets/encke.css.gz"), "\"5ebcc304846725e0-gzip\"")]),
    Asset::new("/assets/mail.css", "text/css; charset=utf-8", include_bytes!("assets/mail.css"), "\"601ddcb43b80e7cf\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/mail.css.br"), "\"601ddcb43b80e7cf-br\""), Encoded::new("gzip", include_bytes!("assets/mail.css.gz"), "\"601ddcb43b80e7cf-gzip\"")]),
    Asset::new("/assets/mail.js", "text/javascript; charset=utf-8", include_bytes!("assets/mail.js"), "\"6875535bae1ee806\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/mail.js.br"), "\"6875535bae1ee806-br\""), Encoded::new("gzip", include_bytes!("assets/mail.js.gz"), "\"6875535bae1ee806-gzip\"")]),
    Asset::new("/assets/menu.js", "text/javascript; charset=utf-8", include_bytes!("assets/menu.js"), "\"85f4a5a76e8738c5\""),
    Asset::new("/assets/orders.css", "text/css; charset=utf-8", include_bytes!("assets/orders.css"), "\"a173b11dde3926f8\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/orders.css.br"), "\"a173b11dde3926f8-br\""), Encoded::new("gzip", include_bytes!("assets/orders.css.gz"), "\"a173b11dde3926f8-gzip\"")]),
    Asset::new("/assets/orders.js", "text/javascript; charset=utf-8", include_bytes!("assets/orders.js"), "\"1a45ee0dd2dbc8d8\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/orders.js.br"), "\"1a45ee0dd2dbc8d8-br\""), Encoded::new("gzip", include_bytes!("assets/orders.js.gz"), "\"1a45ee0dd2dbc8d8-gzip\"")]),
    Asset::new("/assets/quotes.css", "text/css; charset=utf-8", include_bytes!("assets/quotes.css"), "\"3e4c595f8f9750ec\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/quotes.css.br"), "\"3e4c595f8f9750ec-br\""), Encoded::new("gzip", include_bytes!("assets/quotes.css.gz"), "\"3e4c595f8f9750ec-gzip\"")]),
    Asset::new("/assets/quotes.js", "text/javascript; charset=utf-8", include_bytes!("assets/quotes.js"), "\"d1967ae3f24b17b2\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/quotes.js.br"), "\"d1967ae3f24b17b2-br\""), Encoded::new("gzip", include_bytes!("assets/quotes.js.gz"), "\"d1967ae3f24b17b2-gzip\"")]),
    Asset::new("/assets/screenpush-watch.js", "text/javascript; charset=utf-8", include_bytes!("assets/screenpush-watch.js"), "\"a614fc564019f6e5\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/screenpush-watch.js.br"), "\"a614fc564019f6e5-br\""), Encoded::new("gzip", include_bytes!("assets/screenpush-watch.js.gz"), "\"a614fc564019f6e5-gzip\"")]),
    Asset::new("/assets/screenpush.css", "text/css; charset=utf-8", include_bytes!("assets/screenpush.css"), "\"eb400210c0d471d0\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/screenpush.css.br"), "\"eb400210c0d471d0-br\""), Encoded::new("gzip", include_bytes!("assets/screenpush.css.gz"), "\"eb400210c0d471d0-gzip\"")]),
    Asset::new("/assets/screenpush.js", "text/javascript; charset=utf-8", include_bytes!("assets/screenpush.js"), "\"21bbaaac4d33a749\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/screenpush.js.br"), "\"21bbaaac4d33a749-br\""), Encoded::new("gzip", include_bytes!("assets/screenpush.js.gz"), "\"21bbaaac4d33a749-gzip\"")]),
    Asset::new("/assets/slides-pdf.lazy.js", "text/javascript; charset=utf-8", include_bytes!("assets/slides-pdf.lazy.js"), "\"6063a92461c2c1f6\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/slides-pdf.lazy.js.br"), "\"6063a92461c2c1f6-br\""), Encoded::new("gzip", include_bytes!("assets/slides-pdf.lazy.js.gz"), "\"6063a92461c2c1f6-gzip\"")]),
    Asset::new("/assets/slides-pdf.worker.js", "text/javascript; charset=utf-8", include_bytes!("assets/slides-pdf.worker.js"), "\"064dad37f342c29f\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/slides-pdf.worker.js.br"), "\"064dad37f342c29f-br\""), Encoded::new("gzip", include_bytes!("assets/slides-pdf.worker.js.gz"), "\"064dad37f342c29f-gzip\"")]),
    Asset::new("/assets/slides-watch.js", "text/javascript; charset=utf-8", include_bytes!("assets/slides-watch.js"), "\"a037655dbc63b6b1\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/slides-watch.js.br"), "\"a037655dbc63b6b1-br\""), Encoded::new("gzip", include_bytes!("assets/slides-watch.js.gz"), "\"a037655dbc63b6b1-gzip\"")]),
    Asset::new("/assets/slides.css", "text/css; charset=utf-8", include_bytes!("assets/slides.css"), "\"a85174d317e9bd63\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/slides.css.br"), "\"a85174d317e9bd63-br\""), Encoded::new("gzip", include_bytes!("assets/slides.css.gz"), "\"a85174d317e9bd63-gzip\"")]),
    Asset::new("/assets/slides.js", "text/javascript; charset=utf-8", include_bytes!("assets/slides.js"), "\"4e33f50c9be33217\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/slides.js.br"), "\"4e33f50c9be33217-br\""), Encoded::new("gzip", include_bytes!("assets/slides.js.gz"), "\"4e33f50c9be33217-gzip\"")]),
    Asset::new("/assets/start.css", "text/css; charset=utf-8", include_bytes!("assets/start.css"), "\"e3a09dee51c77d16\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/start.css.br"), "\"e3a09dee51c77d16-br\""), Encoded::new("gzip", include_bytes!("assets/start.css.gz"), "\"e3a09dee51c77d16-gzip\"")]),
    Asset::new("/assets/start.js", "text/javascript; charset=utf-8", include_bytes!("assets/start.js"), "\"0fd53254959e1498\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/start.js.br"), "\"0fd53254959e1498-br\""), Encoded::new("gzip", include_bytes!("assets/start.js.gz"), "\"0fd53254959e1498-gzip\"")]),
    Asset::new("/assets/stream.css", "text/css; charset=utf-8", include_bytes!("assets/stream.css"), "\"032fb1ff0f8c4a28\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/stream.css.br"), "\"032fb1ff0f8c4a28-br\""), Encoded::new("gzip", include_bytes!("assets/stream.css.gz"), "\"032fb1ff0f8c4a28-gzip\"")]),
    Asset::new("/assets/stream.js", "text/javascript; charset=utf-8", include_bytes!("assets/stream.js"), "\"44d0ebc5a40575d2\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/stream.js.br"), "\"44d0ebc5a40575d2-br\""), Encoded::new("gzip", include_bytes!("assets/stream.js.gz"), "\"44d0ebc5a40575d2-gzip\"")]),
    Asset::new("/assets/timer.js", "text/javascript; charset=utf-8", include_bytes!("assets/timer.js"), "\"218eab2e2c1599b1\""),
    Asset::new("/demo/chat", "text/html; charset=utf-8", include_bytes!("demo/chat/index.html"), "\"aecf54d07ec65016\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/chat/index.html.br"), "\"aecf54d07ec65016-br\""), Encoded::new("gzip", include_bytes!("demo/chat/index.html.gz"), "\"aecf54d07ec65016-gzip\"")]),
    Asset::new("/demo/chat/", "text/html; charset=utf-8", include_bytes!("demo/chat/index.html"), "\"aecf54d07ec65016\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/chat/index.html.br"), "\"aecf54d07ec65016-br\""), Encoded::new("gzip", include_bytes!("demo/chat/index.html.gz"), "\"aecf54d07ec65016-gzip\"")]),
    Asset::new("/demo/mail", "text/html; charset=utf-8", include_bytes!("demo/mail/index.html"), "\"42f17a47568c947b\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/mail/index.html.br"), "\"42f17a47568c947b-br\""), Encoded::new("gzip", include_bytes!("demo/mail/index.html.gz"), "\"42f17a47568c947b-gzip\"")]),
    Asset::new("/demo/mail/", "text/html; charset=utf-8", include_bytes!("demo/mail/index.html"), "\"42f17a47568c947b\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/mail/index.html.br"), "\"42f17a47568c947b-br\""), Encoded::new("gzip", include_bytes!("demo/mail/index.html.gz"), "\"42f17a47568c947b-gzip\"")]),
    Asset::new("/demo/orders", "text/html; charset=utf-8", include_bytes!("demo/orders/index.html"), "\"718ce3f966411c3a\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/orders/index.html.br"), "\"718ce3f966411c3a-br\""), Encoded::new("gzip", include_bytes!("demo/orders/index.html.gz"), "\"718ce3f966411c3a-gzip\"")]),
    Asset::new("/demo/orders/", "text/html; charset=utf-8", include_bytes!("demo/orders/index.html"), "\"718ce3f966411c3a\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/orders/index.html.br"), "\"718ce3f966411c3a-br\""), Encoded::new("gzip", include_bytes!("demo/orders/index.html.gz"), "\"718ce3f966411c3a-gzip\"")]),
    Asset::new("/demo/quotes", "text/html; charset=utf-8", include_bytes!("demo/quotes/index.html"), "\"60c5a15fa39bb768\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/quotes/index.html.br"), "\"60c5a15fa39bb768-br\""), Encoded::new("gzip", include_bytes!("demo/quotes/index.html.gz"), "\"60c5a15fa39bb768-gzip\"")]),
    Asset::new("/demo/quotes/", "text/html; charset=utf-8", include_bytes!("demo/quotes/index.html"), "\"60c5a15fa39bb768\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/quotes/index.html.br"), "\"60c5a15fa39bb768-br\""), Encoded::new("gzip", include_bytes!("demo/quotes/index.html.gz"), "\"60c5a15fa39bb768-gzip\"")]),
    Asset::new("/demo/screenpush", "text/html; charset=utf-8", include_bytes!("demo/screenpush/index.html"), "\"45cfd8a190a0bc39\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; connect-src 'self' http: https: ws: wss:")
        .encoded(&[Encoded::new("br", include_bytes!("demo/screenpush/index.html.br"), "\"45cfd8a190a0bc39-br\""), Encoded::new("gzip", include_bytes!("demo/screenpush/index.html.gz"), "\"45cfd8a190a0bc39-gzip\"")]),
    Asset::new("/demo/screenpush/", "text/html; charset=utf-8", include_bytes!("demo/screenpush/index.html"), "\"45cfd8a190a0bc39\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; connect-src 'self' http: https: ws: wss:")
        .encoded(&[Encoded::new("br", include_bytes!("demo/screenpush/index.html.br"), "\"45cfd8a190a0bc39-br\""), Encoded::new("gzip", include_bytes!("demo/screenpush/index.html.gz"), "\"45cfd8a190a0bc39-gzip\"")]),
    Asset::new("/demo/screenpush/watch", "text/html; charset=utf-8", include_bytes!("demo/screenpush/watch/index.html"), "\"74ee6f570ff9a0d2\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; connect-src 'self' http: https: ws: wss:")
        .encoded(&[Encoded::new("br", include_bytes!("demo/screenpush/watch/index.html.br"), "\"74ee6f570ff9a0d2-br\""), Encoded::new("gzip", include_bytes!("demo/screenpush/watch/index.html.gz"), "\"74ee6f570ff9a0d2-gzip\"")]),
    Asset::new("/demo/screenpush/watch/", "text/html; charset=utf-8", include_bytes!("demo/screenpush/watch/index.html"), "\"74ee6f570ff9a0d2\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; connect-src 'self' http: https: ws: wss:")
        .encoded(&[Encoded::new("br", include_bytes!("demo/screenpush/watch/index.html.br"), "\"74ee6f570ff9a0d2-br\""), Encoded::new("gzip", include_bytes!("demo/screenpush/watch/index.html.gz"), "\"74ee6f570ff9a0d2-gzip\"")]),
    Asset::new("/demo/slides", "text/html; charset=utf-8", include_bytes!("demo/slides/index.html"), "\"40a481dcfe22c016\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/slides/index.html.br"), "\"40a481dcfe22c016-br\""), Encoded::new("gzip", include_bytes!("demo/slides/index.html.gz"), "\"40a481dcfe22c016-gzip\"")]),
    Asset::new("/demo/slides/", "text/html; charset=utf-8", include_bytes!("demo/slides/index.html"), "\"40a481dcfe22c016\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/slides/index.html.br"), "\"40a481dcfe22c016-br\""), Encoded::new("gzip", include_bytes!("demo/slides/index.html.gz"), "\"40a481dcfe22c016-gzip\"")]),
    Asset::new("/demo/slides/watch", "text/html; charset=utf-8", include_bytes!("demo/slides/watch/index.html"), "\"32e24568bd53e521\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/slides/watch/index.html.br"), "\"32e24568bd53e521-br\""), Encoded::new("gzip", include_bytes!("demo/slides/watch/index.html.gz"), "\"32e24568bd53e521-gzip\"")]),
    Asset::new("/demo/slides/watch/", "text/html; charset=utf-8", include_bytes!("demo/slides/watch/index.html"), "\"32e24568bd53e521\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/slides/watch/index.html.br"), "\"32e24568bd53e521-br\""), Encoded::new("gzip", include_bytes!("demo/slides/watch/index.html.gz"), "\"32e24568bd53e521-gzip\"")]),
    Asset::new("/demo/stream", "text/html; charset=utf-8", include_bytes!("demo/stream/index.html"), "\"e155de9445eddeae\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/stream/index.html.br"), "\"e155de9445eddeae-br\""), Encoded::new("gzip", include_bytes!("demo/stream/index.html.gz"), "\"e155de9445eddeae-gzip\"")]),
    Asset::new("/demo/stream/", "text/html; charset=utf-8", include_bytes!("demo/stream/index.html"), "\"e155de9445eddeae\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/stream/index.html.br"), "\"e155de9445eddeae-br\""), Encoded::new("gzip", include_bytes!("demo/stream/index.html.gz"), "\"e155de9445eddeae-gzip\"")]),
    Asset::new("/", "text/html; charset=utf-8", include_bytes!("index.html"), "\"86e348f97a1fe9e4\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("index.html.br"), "\"86e348f97a1fe9e4-br\""), Encoded::new("gzip", include_bytes!("index.html.gz"), "\"86e348f97a1fe9e4-gzip\"")]),
]
