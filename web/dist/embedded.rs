// Written by web/build.mjs: all files beside this one.
&[
    Asset::new("/assets/chat.css", "text/css; charset=utf-8", include_bytes!("assets/chat.css"), "\"50d9c01c9940e732\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/chat.css.br"), "\"50d9c01c9940e732-br\""), Encoded::new("gzip", include_bytes!("assets/chat.css.gz"), "\"50d9c01c9940e732-gzip\"")]),
    Asset::new("/assets/chat.js", "text/javascript; charset=utf-8", include_bytes!("assets/chat.js"), "\"7e88516b2906ded8\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/chat.js.br"), "\"7e88516b2906ded8-br\""), Encoded::new("gzip", include_bytes!("assets/chat.js.gz"), "\"7e88516b2906ded8-gzip\"")]),
    Asset::new("/assets/comet.svg", "image/svg+xml", include_bytes!("assets/comet.svg"), "\"60e855a2ba434f21\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/comet.svg.br"), "\"60e855a2ba434f21-br\""), Encoded::new("gzip", include_bytes!("assets/comet.svg.gz"), "\"60e855a2ba434f21-gzip\"")]),
    Asset::new("/assets/encke.css", "text/css; charset=utf-8", include_bytes!("assets/encke.css"), "\"5ebcc304846725e0\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/encke.css.br"), "\"5ebcc304846725e0-br\""), Encoded::new("gzip", include_bytes!("assets/encke.css.gz"), "\"5ebcc304846725e0-gzip\"")]),
    Asset::new("/assets/game.css", "text/css; charset=utf-8", include_bytes!("assets/game.css"), "\"332509ef5650d187\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/game.css.br"), "\"332509ef5650d187-br\""), Encoded::new("gzip", include_bytes!("assets/game.css.gz"), "\"332509ef5650d187-gzip\"")]),
    Asset::new("/assets/game.js", "text/javascript; charset=utf-8", include_bytes!("assets/game.js"), "\"88d5a486c8564b4d\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/game.js.br"), "\"88d5a486c8564b4d-br\""), Encoded::new("gzip", include_bytes!("assets/game.js.gz"), "\"88d5a486c8564b4d-gzip\"")]),
    Asset::new("/assets/mail.css", "text/css; charset=utf-8", include_bytes!("assets/mail.css"), "\"601ddcb43b80e7cf\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/mail.css.br"), "\"601ddcb43b80e7cf-br\""), Encoded::new("gzip", include_bytes!("assets/mail.css.gz"), "\"601ddcb43b80e7cf-gzip\"")]),
    Asset::new("/assets/mail.js", "text/javascript; charset=utf-8", include_bytes!("assets/mail.js"), "\"0fb48d45102c59fc\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/mail.js.br"), "\"0fb48d45102c59fc-br\""), Encoded::new("gzip", include_bytes!("assets/mail.js.gz"), "\"0fb48d45102c59fc-gzip\"")]),
    Asset::new("/assets/menu.js", "text/javascript; charset=utf-8", include_bytes!("assets/menu.js"), "\"c87164b9c7a806d4\""),
    Asset::new("/assets/orders.css", "text/css; charset=utf-8", include_bytes!("assets/orders.css"), "\"4e45de4db2e0af30\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/orders.css.br"), "\"4e45de4db2e0af30-br\""), Encoded::new("gzip", include_bytes!("assets/orders.css.gz"), "\"4e45de4db2e0af30-gzip\"")]),
    Asset::new("/assets/orders.js", "text/javascript; charset=utf-8", include_bytes!("assets/orders.js"), "\"2c17c0f1766f63b4\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/orders.js.br"), "\"2c17c0f1766f63b4-br\""), Encoded::new("gzip", include_bytes!("assets/orders.js.gz"), "\"2c17c0f1766f63b4-gzip\"")]),
    Asset::new("/assets/presence.css", "text/css; charset=utf-8", include_bytes!("assets/presence.css"), "\"7a57440fd6fa5e32\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/presence.css.br"), "\"7a57440fd6fa5e32-br\""), Encoded::new("gzip", include_bytes!("assets/presence.css.gz"), "\"7a57440fd6fa5e32-gzip\"")]),
    Asset::new("/assets/presence.js", "text/javascript; charset=utf-8", include_bytes!("assets/presence.js"), "\"58ca87572aadf134\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/presence.js.br"), "\"58ca87572aadf134-br\""), Encoded::new("gzip", include_bytes!("assets/presence.js.gz"), "\"58ca87572aadf134-gzip\"")]),
    Asset::new("/assets/quotes.css", "text/css; charset=utf-8", include_bytes!("assets/quotes.css"), "\"3e4c595f8f9750ec\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/quotes.css.br"), "\"3e4c595f8f9750ec-br\""), Encoded::new("gzip", include_bytes!("assets/quotes.css.gz"), "\"3e4c595f8f9750ec-gzip\"")]),
    Asset::new("/assets/quotes.js", "text/javascript; charset=utf-8", include_bytes!("assets/quotes.js"), "\"853830d0f4f8a7e2\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/quotes.js.br"), "\"853830d0f4f8a7e2-br\""), Encoded::new("gzip", include_bytes!("assets/quotes.js.gz"), "\"853830d0f4f8a7e2-gzip\"")]),
    Asset::new("/assets/screenpush-watch.js", "text/javascript; charset=utf-8", include_bytes!("assets/screenpush-watch.js"), "\"440e0360033c74fd\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/screenpush-watch.js.br"), "\"440e0360033c74fd-br\""), Encoded::new("gzip", include_bytes!("assets/screenpush-watch.js.gz"), "\"440e0360033c74fd-gzip\"")]),
    Asset::new("/assets/screenpush.css", "text/css; charset=utf-8", include_bytes!("assets/screenpush.css"), "\"eb400210c0d471d0\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/screenpush.css.br"), "\"eb400210c0d471d0-br\""), Encoded::new("gzip", include_bytes!("assets/screenpush.css.gz"), "\"eb400210c0d471d0-gzip\"")]),
    Asset::new("/assets/screenpush.js", "text/javascript; charset=utf-8", include_bytes!("assets/screenpush.js"), "\"ec2241ecf19dec8e\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/screenpush.js.br"), "\"ec2241ecf19dec8e-br\""), Encoded::new("gzip", include_bytes!("assets/screenpush.js.gz"), "\"ec2241ecf19dec8e-gzip\"")]),
    Asset::new("/assets/slides-pdf.lazy.js", "text/javascript; charset=utf-8", include_bytes!("assets/slides-pdf.lazy.js"), "\"ba13b57192702d28\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/slides-pdf.lazy.js.br"), "\"ba13b57192702d28-br\""), Encoded::new("gzip", include_bytes!("assets/slides-pdf.lazy.js.gz"), "\"ba13b57192702d28-gzip\"")]),
    Asset::new("/assets/slides-pdf.worker.js", "text/javascript; charset=utf-8", include_bytes!("assets/slides-pdf.worker.js"), "\"c8825c9a96e066bf\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/slides-pdf.worker.js.br"), "\"c8825c9a96e066bf-br\""), Encoded::new("gzip", include_bytes!("assets/slides-pdf.worker.js.gz"), "\"c8825c9a96e066bf-gzip\"")]),
    Asset::new("/assets/slides-watch.js", "text/javascript; charset=utf-8", include_bytes!("assets/slides-watch.js"), "\"f35fd8a34d268ecc\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/slides-watch.js.br"), "\"f35fd8a34d268ecc-br\""), Encoded::new("gzip", include_bytes!("assets/slides-watch.js.gz"), "\"f35fd8a34d268ecc-gzip\"")]),
    Asset::new("/assets/slides.css", "text/css; charset=utf-8", include_bytes!("assets/slides.css"), "\"a85174d317e9bd63\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/slides.css.br"), "\"a85174d317e9bd63-br\""), Encoded::new("gzip", include_bytes!("assets/slides.css.gz"), "\"a85174d317e9bd63-gzip\"")]),
    Asset::new("/assets/slides.js", "text/javascript; charset=utf-8", include_bytes!("assets/slides.js"), "\"78009ba255133501\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/slides.js.br"), "\"78009ba255133501-br\""), Encoded::new("gzip", include_bytes!("assets/slides.js.gz"), "\"78009ba255133501-gzip\"")]),
    Asset::new("/assets/start.css", "text/css; charset=utf-8", include_bytes!("assets/start.css"), "\"0c64ca38e1fbca5f\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/start.css.br"), "\"0c64ca38e1fbca5f-br\""), Encoded::new("gzip", include_bytes!("assets/start.css.gz"), "\"0c64ca38e1fbca5f-gzip\"")]),
    Asset::new("/assets/start.js", "text/javascript; charset=utf-8", include_bytes!("assets/start.js"), "\"5b60afabcf71098a\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/start.js.br"), "\"5b60afabcf71098a-br\""), Encoded::new("gzip", include_bytes!("assets/start.js.gz"), "\"5b60afabcf71098a-gzip\"")]),
    Asset::new("/assets/stream.css", "text/css; charset=utf-8", include_bytes!("assets/stream.css"), "\"032fb1ff0f8c4a28\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/stream.css.br"), "\"032fb1ff0f8c4a28-br\""), Encoded::new("gzip", include_bytes!("assets/stream.css.gz"), "\"032fb1ff0f8c4a28-gzip\"")]),
    Asset::new("/assets/stream.js", "text/javascript; charset=utf-8", include_bytes!("assets/stream.js"), "\"0859b852984777eb\"")
        .encoded(&[Encoded::new("br", include_bytes!("assets/stream.js.br"), "\"0859b852984777eb-br\""), Encoded::new("gzip", include_bytes!("assets/stream.js.gz"), "\"0859b852984777eb-gzip\"")]),
    Asset::new("/assets/timer.js", "text/javascript; charset=utf-8", include_bytes!("assets/timer.js"), "\"660c4d6a8445d0dc\""),
    Asset::new("/demo/chat", "text/html; charset=utf-8", include_bytes!("demo/chat/index.html"), "\"4f56e4b2cd2e6fe9\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/chat/index.html.br"), "\"4f56e4b2cd2e6fe9-br\""), Encoded::new("gzip", include_bytes!("demo/chat/index.html.gz"), "\"4f56e4b2cd2e6fe9-gzip\"")]),
    Asset::new("/demo/chat/", "text/html; charset=utf-8", include_bytes!("demo/chat/index.html"), "\"4f56e4b2cd2e6fe9\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/chat/index.html.br"), "\"4f56e4b2cd2e6fe9-br\""), Encoded::new("gzip", include_bytes!("demo/chat/index.html.gz"), "\"4f56e4b2cd2e6fe9-gzip\"")]),
    Asset::new("/demo/game", "text/html; charset=utf-8", include_bytes!("demo/game/index.html"), "\"de676be32ef60d8b\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/game/index.html.br"), "\"de676be32ef60d8b-br\""), Encoded::new("gzip", include_bytes!("demo/game/index.html.gz"), "\"de676be32ef60d8b-gzip\"")]),
    Asset::new("/demo/game/", "text/html; charset=utf-8", include_bytes!("demo/game/index.html"), "\"de676be32ef60d8b\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/game/index.html.br"), "\"de676be32ef60d8b-br\""), Encoded::new("gzip", include_bytes!("demo/game/index.html.gz"), "\"de676be32ef60d8b-gzip\"")]),
    Asset::new("/demo/mail", "text/html; charset=utf-8", include_bytes!("demo/mail/index.html"), "\"c8a923f797d2e2c9\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/mail/index.html.br"), "\"c8a923f797d2e2c9-br\""), Encoded::new("gzip", include_bytes!("demo/mail/index.html.gz"), "\"c8a923f797d2e2c9-gzip\"")]),
    Asset::new("/demo/mail/", "text/html; charset=utf-8", include_bytes!("demo/mail/index.html"), "\"c8a923f797d2e2c9\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/mail/index.html.br"), "\"c8a923f797d2e2c9-br\""), Encoded::new("gzip", include_bytes!("demo/mail/index.html.gz"), "\"c8a923f797d2e2c9-gzip\"")]),
    Asset::new("/demo/orders", "text/html; charset=utf-8", include_bytes!("demo/orders/index.html"), "\"ff331e0b6aa8e0c8\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/orders/index.html.br"), "\"ff331e0b6aa8e0c8-br\""), Encoded::new("gzip", include_bytes!("demo/orders/index.html.gz"), "\"ff331e0b6aa8e0c8-gzip\"")]),
    Asset::new("/demo/orders/", "text/html; charset=utf-8", include_bytes!("demo/orders/index.html"), "\"ff331e0b6aa8e0c8\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/orders/index.html.br"), "\"ff331e0b6aa8e0c8-br\""), Encoded::new("gzip", include_bytes!("demo/orders/index.html.gz"), "\"ff331e0b6aa8e0c8-gzip\"")]),
    Asset::new("/demo/presence", "text/html; charset=utf-8", include_bytes!("demo/presence/index.html"), "\"62990c11ebba94d8\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/presence/index.html.br"), "\"62990c11ebba94d8-br\""), Encoded::new("gzip", include_bytes!("demo/presence/index.html.gz"), "\"62990c11ebba94d8-gzip\"")]),
    Asset::new("/demo/presence/", "text/html; charset=utf-8", include_bytes!("demo/presence/index.html"), "\"62990c11ebba94d8\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/presence/index.html.br"), "\"62990c11ebba94d8-br\""), Encoded::new("gzip", include_bytes!("demo/presence/index.html.gz"), "\"62990c11ebba94d8-gzip\"")]),
    Asset::new("/demo/quotes", "text/html; charset=utf-8", include_bytes!("demo/quotes/index.html"), "\"7599f327c9fd8447\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/quotes/index.html.br"), "\"7599f327c9fd8447-br\""), Encoded::new("gzip", include_bytes!("demo/quotes/index.html.gz"), "\"7599f327c9fd8447-gzip\"")]),
    Asset::new("/demo/quotes/", "text/html; charset=utf-8", include_bytes!("demo/quotes/index.html"), "\"7599f327c9fd8447\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/quotes/index.html.br"), "\"7599f327c9fd8447-br\""), Encoded::new("gzip", include_bytes!("demo/quotes/index.html.gz"), "\"7599f327c9fd8447-gzip\"")]),
    Asset::new("/demo/screenpush", "text/html; charset=utf-8", include_bytes!("demo/screenpush/index.html"), "\"b93370ba80039f86\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; connect-src 'self' http: https: ws: wss:")
        .encoded(&[Encoded::new("br", include_bytes!("demo/screenpush/index.html.br"), "\"b93370ba80039f86-br\""), Encoded::new("gzip", include_bytes!("demo/screenpush/index.html.gz"), "\"b93370ba80039f86-gzip\"")]),
    Asset::new("/demo/screenpush/", "text/html; charset=utf-8", include_bytes!("demo/screenpush/index.html"), "\"b93370ba80039f86\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; connect-src 'self' http: https: ws: wss:")
        .encoded(&[Encoded::new("br", include_bytes!("demo/screenpush/index.html.br"), "\"b93370ba80039f86-br\""), Encoded::new("gzip", include_bytes!("demo/screenpush/index.html.gz"), "\"b93370ba80039f86-gzip\"")]),
    Asset::new("/demo/screenpush/watch", "text/html; charset=utf-8", include_bytes!("demo/screenpush/watch/index.html"), "\"2039ccdbf4901f3d\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; connect-src 'self' http: https: ws: wss:")
        .encoded(&[Encoded::new("br", include_bytes!("demo/screenpush/watch/index.html.br"), "\"2039ccdbf4901f3d-br\""), Encoded::new("gzip", include_bytes!("demo/screenpush/watch/index.html.gz"), "\"2039ccdbf4901f3d-gzip\"")]),
    Asset::new("/demo/screenpush/watch/", "text/html; charset=utf-8", include_bytes!("demo/screenpush/watch/index.html"), "\"2039ccdbf4901f3d\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; connect-src 'self' http: https: ws: wss:")
        .encoded(&[Encoded::new("br", include_bytes!("demo/screenpush/watch/index.html.br"), "\"2039ccdbf4901f3d-br\""), Encoded::new("gzip", include_bytes!("demo/screenpush/watch/index.html.gz"), "\"2039ccdbf4901f3d-gzip\"")]),
    Asset::new("/demo/slides", "text/html; charset=utf-8", include_bytes!("demo/slides/index.html"), "\"3b432973ea10a4a6\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/slides/index.html.br"), "\"3b432973ea10a4a6-br\""), Encoded::new("gzip", include_bytes!("demo/slides/index.html.gz"), "\"3b432973ea10a4a6-gzip\"")]),
    Asset::new("/demo/slides/", "text/html; charset=utf-8", include_bytes!("demo/slides/index.html"), "\"3b432973ea10a4a6\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/slides/index.html.br"), "\"3b432973ea10a4a6-br\""), Encoded::new("gzip", include_bytes!("demo/slides/index.html.gz"), "\"3b432973ea10a4a6-gzip\"")]),
    Asset::new("/demo/slides/watch", "text/html; charset=utf-8", include_bytes!("demo/slides/watch/index.html"), "\"99b5daa64069d783\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/slides/watch/index.html.br"), "\"99b5daa64069d783-br\""), Encoded::new("gzip", include_bytes!("demo/slides/watch/index.html.gz"), "\"99b5daa64069d783-gzip\"")]),
    Asset::new("/demo/slides/watch/", "text/html; charset=utf-8", include_bytes!("demo/slides/watch/index.html"), "\"99b5daa64069d783\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/slides/watch/index.html.br"), "\"99b5daa64069d783-br\""), Encoded::new("gzip", include_bytes!("demo/slides/watch/index.html.gz"), "\"99b5daa64069d783-gzip\"")]),
    Asset::new("/demo/stream", "text/html; charset=utf-8", include_bytes!("demo/stream/index.html"), "\"a71a6976dd59e34d\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/stream/index.html.br"), "\"a71a6976dd59e34d-br\""), Encoded::new("gzip", include_bytes!("demo/stream/index.html.gz"), "\"a71a6976dd59e34d-gzip\"")]),
    Asset::new("/demo/stream/", "text/html; charset=utf-8", include_bytes!("demo/stream/index.html"), "\"a71a6976dd59e34d\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("demo/stream/index.html.br"), "\"a71a6976dd59e34d-br\""), Encoded::new("gzip", include_bytes!("demo/stream/index.html.gz"), "\"a71a6976dd59e34d-gzip\"")]),
    Asset::new("/", "text/html; charset=utf-8", include_bytes!("index.html"), "\"9662c9119cc5795e\"")
        .content_security_policy("default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
        .encoded(&[Encoded::new("br", include_bytes!("index.html.br"), "\"9662c9119cc5795e-br\""), Encoded::new("gzip", include_bytes!("index.html.gz"), "\"9662c9119cc5795e-gzip\"")]),
]
