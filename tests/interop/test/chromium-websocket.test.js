import {chromiumSuite} from "../src/chromium.js";

chromiumSuite("websocket");
