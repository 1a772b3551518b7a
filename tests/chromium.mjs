// Chromium for the suites: the program (`CHROMIUM`, or Debian's) and its options. It trusts the certificate in the file `CHROMIUM_TRUSTS`.

import { X509Certificate, createHash } from "node:crypto";
import { readFileSync } from "node:fs";

// The last list of features counts, so this repeats Playwright's own. The first two are pages of the address bar: each window would load
// them, at three times the cost of the window itself.
const UNUSED_FEATURES = [
    "WebUIOmniboxPopup", "WebUIOmniboxAimPopup",
    "AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades", "HttpsFirstBalancedModeAutoEnable", "LensOverlay",
    "MediaRouter", "PaintHolding", "ThirdPartyStoragePartitioning", "AvoidCorsURLLoaderRestartOnRedirect", "OptimizationHints",
    "NetworkTimeServiceQuerying", "AimEnabled", "PreconnectToSearch",
];

export const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
export const CHROMIUM_OPTIONS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", `--disable-features=${UNUSED_FEATURES}`,
    ...(process.env.CHROMIUM_TRUSTS ? [trust(process.env.CHROMIUM_TRUSTS)] : []),
];
/** The limit of the time that it may take to start, on a machine that has a lot to do. */
export const CHROMIUM_START_MS = 90_000;

/** The option that accepts certificates with the key of this one, and no others that are not trusted anyway. */
function trust(file) {
    const key = new X509Certificate(readFileSync(file)).publicKey.export({ type: "spki", format: "der" });
    return `--ignore-certificate-errors-spki-list=${createHash("sha256").update(key).digest("base64")}`;
}
