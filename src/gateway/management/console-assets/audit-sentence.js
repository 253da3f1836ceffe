/** Nouns of the objects in actions, as this console calls them. */
export const NOUNS = {
  api_key: 'API key',
  bot_user: 'bot user',
  certificate_authority: 'client CA',
  credential: 'authtoken',
  device: 'device',
  endpoint: 'endpoint',
  error_page: 'error page',
  invite: 'invitation',
  ip_policy: 'IP policy',
  ip_policy_rule: 'IP policy rule',
  node: 'node',
  notification_channel: 'notification channel',
  reserved_addr: 'address',
  reserved_domain: 'domain',
  session: 'session',
  storage: 'storage',
  tls_certificate: 'certificate',
  tunnel_session: 'agent',
  vault: 'vault',
  vault_secret: 'secret',
  webhook_endpoint: 'webhook',
}

/** Verbs, and what follows the noun. */
const VERBS = {
  check: ['check', 'checked'],
  confirm: ['confirm', 'confirmed'],
  create: ['create', 'created'],
  delete: ['delete', 'deleted'],
  delete_certificate: ['detach the certificate of', 'detached the certificate of'],
  delete_certificate_management_policy: [
    'reset the certificate policy of',
    'reset the certificate policy of',
  ],
  delete_force: ['delete', 'deleted', 'although it was in use'],
  drain: ['drain', 'drained'],
  replace: ['replace', 'replaced'],
  replay: ['send events again to', 'sent events again to'],
  restart: ['restart', 'restarted'],
  rotate: ['create a new secret for', 'created a new secret for'],
  stop: ['stop', 'stopped'],
  test: ['send a test message to', 'sent a test message to'],
  undrain: ['cancel the drain of', 'cancelled the drain of'],
  update: ['change', 'changed'],
}
const SESSIONS = { create: ['sign in', 'signed in'], delete: ['sign out', 'signed out'] }

/** Who did what to which object, such as `office changed bot user press-1`. */
export function auditSentence({ who, action, target, changes, result }) {
  if (action === 'invite.use') return joinSentence({ who, target, result })
  const [object, ...rest] = action.split('.')
  const verb = rest.join('.')
  const name = target.name ?? namedIn(changes) ?? target.id ?? ''
  const isSession = object === 'session' && Object.hasOwn(SESSIONS, verb)
  const [base, past, after = ''] = isSession ? SESSIONS[verb] : (VERBS[verb] ?? unknownVerb(verb))
  const noun = NOUNS[object] ?? object.replaceAll('_', ' ')
  const what = isSession ? '' : [noun, name, after].filter(Boolean).join(' ')
  return [shortName(who), did(result, base, past), what].filter(Boolean).join(' ')
}

/** A gateway of a cluster has its id in the name of its own key. The details show it. */
const shortName = ({ name }) => name.replace(/, nd_\w+$/, '')

/** The actor of a use is the invitation. A refused device has no name yet. */
function joinSentence({ who, target, result }) {
  const device = target.name ?? 'a device'
  const invitation = who.id === null ? 'an unknown invitation' : `the invitation ${who.name}`
  return `${device} ${did(result, 'join', 'joined')} with ${invitation}`
}

/** The name of an object that is known by something else: the domains of a certificate, the kind of a page. */
function namedIn(changes) {
  const { subject_alternative_names: names, kind } = changes ?? {}
  const [before, after] = Array.isArray(names) ? names : (kind ?? [])
  const value = after ?? before
  return value?.dns_names?.join(', ') ?? (typeof value === 'string' ? value : undefined)
}

function did(result, base, past) {
  if (result === 'ok') return past
  return result === 'unknown' ? `tried to ${base}` : `could not ${base}`
}

function unknownVerb(verb) {
  const text = verb.replaceAll(/[._]/g, ' ')
  return [`use “${text}” on`, `used “${text}” on`]
}
