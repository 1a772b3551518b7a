import {nodeSuite} from "../src/node.js";

nodeSuite("websocket");
