import { nearest } from '../../base/nearest.ts'

/** Types from other products, and shorter ones, in small letters without signs. */
const MEANT: Readonly<Record<string, string>> = {
  block: 'deny',
  reject: 'deny',
  setheaders: 'add-headers',
  setheader: 'add-headers',
  addresponseheaders: 'add-headers',
  requestheaders: 'add-headers',
  responseheaders: 'add-headers',
  deleteheaders: 'remove-headers',
  iprestriction: 'restrict-ips',
  iprestrictions: 'restrict-ips',
  ipallow: 'restrict-ips',
  oidc: 'openid-connect',
  jwt: 'jwt-validation',
  validatejwt: 'jwt-validation',
  auth: 'basic-auth',
  rewrite: 'url-rewrite',
  urlredirect: 'redirect',
  response: 'custom-response',
  respond: 'custom-response',
  staticresponse: 'custom-response',
  webhook: 'verify-webhook',
  webhookverification: 'verify-webhook',
  compression: 'compress-response',
  proxy: 'forward-internal',
  mtls: 'terminate-tls',
  mutualtls: 'terminate-tls',
  limit: 'rate-limit',
  ratelimiting: 'rate-limit',
  throttle: 'rate-limit',
  setvariables: 'set-vars',
  fetch: 'http-request',
}

const plain = (type: string) => type.toLowerCase().replace(/[^a-z0-9]/g, '')

/** The type that is meant by an unknown one. */
export function meantType(type: string, types: Iterable<string>): string | undefined {
  const all = Array.from(types)
  const name = plain(type)
  return all.find((one) => plain(one) === name) ?? MEANT[name] ?? nearest(type, all)
}

/** Why there is no action of a type that people often look for: a sentence. */
export function missingType(type: string): string | undefined {
  if (!/^(?:allow|accept|continue|pass|next|none)$/i.test(type)) return undefined
  return 'Requests go on unless an action ends them: deny what is not allowed.'
}
