import {nodeSuite} from "../src/node.js";

nodeSuite("long-polling");
