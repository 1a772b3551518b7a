import {chromiumSuite} from "../src/chromium.js";

chromiumSuite("callback-polling");
