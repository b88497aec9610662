import { render } from "../vendor/preact.js";
