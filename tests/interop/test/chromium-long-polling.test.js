import {chromiumSuite} from "../src/chromium.js";

chromiumSuite("long-polling");
