/** Where the agent's API answers the probe that comes back through the public domain. */
export const PROBE_PATH = '/.well-known/device-agent-probe'
