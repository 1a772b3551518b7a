// Chromium for the suites: the program (`CHROMIUM`, or Debian's) and its options.

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
];
/** The limit of the time that it may take to start, on a machine that has a lot to do. */
export const CHROMIUM_START_MS = 90_000;
