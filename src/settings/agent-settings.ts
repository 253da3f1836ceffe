import type { Secret } from '../base/secret.ts'
import {
  apiToken,
  domain,
  flag,
  list,
  listen,
  oneOf,
  path,
  seconds,
  secondsOrZero,
  secret,
  servers,
  sha256,
  upstreamHealth,
  whole,
} from './forms.ts'
import { type GroupValues, type NamedValues, setting, valuesOf } from './group.ts'

/** Connection to the service. */
export const SERVICE = {
  SVC_AUTHTOKEN: setting('authtoken', secret).describe('authtoken; prefer SVC_AUTHTOKEN_FILE'),
  SVC_AUTHTOKEN_FILE: setting('authtokenFile', path).describe(
    'file with the authtoken; changes are applied at once',
  ),
  SVC_AUTHTOKEN_JOINED: setting('joinedAuthtoken', secret).describe(
    'authtoken of an interrupted `join`, used before all others; `join` writes and removes it',
  ),
  SVC_JOIN_FILE: setting('joinFile', path).describe(
    'file with a join string, for containers; used once, while neither an authtoken is set nor the data directory has one',
  ),
  SVC_SERVER_ADDR: setting('serverAddrs', servers, '').describe(
    'host:port of the gateway, or several, comma-separated, for a standby session; unset: the hosted service',
  ),
  SVC_INGRESS_ADDR: setting('ingress', listen).describe(
    'host:port of the ingress, for checks of the public domain; unset: from DNS',
  ),
  SVC_CA_CERT: setting('caCertPath', path).describe(
    'PEM file with the CA certificate of the gateway',
  ),
}

/** Access to the management API. */
export const MANAGEMENT_CLIENT = {
  SVC_API_KEY: setting('apiKey', secret).describe(
    'management API key for `provision`; prefer a file',
  ),
}

/** Listeners of the agent API. */
export const API = {
  AGENT_DOMAIN: setting('domain', domain).describe(
    'public domain of the agent API; unset: local only (with `up`: agent.site.localhost)',
  ),
  AGENT_LISTEN: setting('listen', listen, '127.0.0.1:7040').describe(
    'host:port of the agent API on the device',
  ),
  AGENT_PAGE_LISTEN: setting('pageListen', listen).describe(
    'host:port of the device page for the local network; unset: only at AGENT_LISTEN',
  ),
}

/** Files of the agent. */
export const FILES = {
  AGENT_DATA_DIR: setting('dataDir', path).describe(
    'data directory of the agent (under systemd: StateDirectory)',
    'data',
  ),
  AGENT_DEFAULT_POLICY: setting('defaultPolicyPath', path).describe(
    'policy file for tunnels without a policy; default: default-policy.json, or the built-in policy if it is missing',
    'default-policy.json',
  ),
}

/** Tokens of the agent API. */
export const TOKENS = {
  AGENT_API_TOKEN: setting('apiToken', apiToken).describe(
    'owner token of the agent API; unset: created at first start in data/api-token',
  ),
  AGENT_API_TOKEN_SHA256: setting('apiTokenHash', sha256).describe(
    'SHA-256 hash of an API token with scope `write`, written by `provision`; imported once as `provisioned`',
  ),
}

/** Allowed upstreams. */
export const FORWARD = {
  AGENT_FORWARD_ALLOW: setting('allow', list, '').describe(
    'allowed upstreams besides loopback: hosts or CIDRs with optional :port, and unix:/paths',
  ),
}

/** Limits of the tunnels. */
export const TUNNELS = {
  AGENT_MAX_TUNNELS: setting('maxTunnels', whole(1, 10_000), '1000').describe(
    'maximum number of tunnels on the device',
  ),
  AGENT_DRAIN_SECONDS: setting('drainMs', seconds(0, 60), '10').describe(
    'seconds that open requests may take to finish when the agent stops',
  ),
}

/** Traffic of the link while nothing happens. */
export const LINK = {
  AGENT_METERED: setting('isMetered', flag, 'false').describe(
    'reduce idle traffic to under 30 MB a month, for metered links such as 4G',
  ),
  AGENT_TCP_NODELAY: setting('isNoDelay', flag, 'true').describe(
    'send small responses without waiting for a round trip (TCP_NODELAY on the connection to the gateway; Linux only)',
  ),
  AGENT_HEARTBEAT_SECONDS: setting('heartbeatS', whole(5, 300, 'seconds')).describe(
    'seconds between heartbeats; the link is closed 15 s after a missed answer (metered: 13 s)',
    '10, metered 45',
  ),
  AGENT_PROBE_SECONDS: setting('probeS', secondsOrZero(10, 86_400)).describe(
    'seconds between checks of the public domain; 0: only after a change',
    '30, metered 0',
  ),
}

/** Upstreams of tunnels that do not set these options. */
export const UPSTREAM = {
  AGENT_UPSTREAM_HEALTH: setting('health', upstreamHealth, 'tcp').describe(
    'health check of upstreams, every 10 s to 5 min: off, tcp (open a connection), or a path that must return a status below 500',
  ),
  AGENT_UPSTREAM_TIMEOUT: setting('timeout', whole(1, 3_600, 'seconds'), '60').describe(
    'seconds without data from an upstream before the gateway answers 504',
  ),
}

/** Checks of policies. */
export const POLICIES = {
  AGENT_UNKNOWN_ACTIONS: setting('unknownActions', oneOf(['warn', 'refuse']), 'warn').describe(
    'treatment of policy actions that only the hosted service may support: warn or refuse; a gateway always refuses them',
  ),
}

/** Groups whose values stand side by side, because several parts use them. */
const COMMON = { ...SERVICE, ...API, ...FILES, ...TOKENS, ...TUNNELS, ...POLICIES }

/** All settings of the agent, in the order of the docs. */
export const AGENT = {
  ...SERVICE,
  ...MANAGEMENT_CLIENT,
  ...API,
  ...FILES,
  ...TOKENS,
  ...FORWARD,
  ...TUNNELS,
  ...LINK,
  ...UPSTREAM,
  ...POLICIES,
}

/** Values that take the place of settings: directories and credentials of the service manager. */
export interface AgentPlaces {
  readonly dataDir: string
  /** Undefined unless a service manager has made the directory. */
  readonly runtimeDir: string | undefined
  readonly defaultPolicyPath: string
  readonly authtoken: Secret | undefined
  readonly authtokenFile: string | undefined
  /** The service manager or container engine has put that file there, and decides on its mode. */
  readonly isTokenMounted: boolean
  readonly apiToken: Secret | undefined
}

export type AgentSettings = ReturnType<typeof agentSettings>
export type TunnelSettings = GroupValues<typeof TUNNELS & typeof POLICIES>
export type LinkSettings = GroupValues<typeof LINK>

/** Settings of the agent, by group. */
export function agentSettings(named: NamedValues<typeof AGENT>, places: AgentPlaces) {
  return {
    ...valuesOf(COMMON, named),
    ...places,
    forward: valuesOf(FORWARD, named),
    link: valuesOf(LINK, named),
    upstream: valuesOf(UPSTREAM, named),
  }
}
