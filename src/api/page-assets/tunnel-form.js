import { ask } from './api.js'
import { longTextField, openForm, selectField, textField } from './dialog.js'
import { element, fill } from './element.js'
import { foundServices, suggestedName } from './found-services.js'

const YES_NO = [
  ['', 'Default'],
  ['true', 'Yes'],
  ['false', 'No'],
]
const DEFAULT_OFF = [
  ['', 'No'],
  ['true', 'Yes'],
]
const UPSTREAM = 'upstream.'
/** Options that are numbers in the API. */
const NUMBERS = new Set(['timeout', 'max_connections', 'proxy_protocol'])

const TAKEN =
  'A tunnel of this device has this name already. Choose another name, or cancel and edit that tunnel.'

/** Names of the fields, for people. */
const LABELS = {
  forwards_to: 'Service on this device',
  policy: 'Traffic policy',
  'upstream.timeout': 'Seconds to wait for an answer',
  'upstream.health': 'Health check',
  'upstream.max_connections': 'Maximum number of connections',
  'upstream.http2': 'HTTP/2 to the service',
  'upstream.proxy_protocol': 'PROXY header',
  'upstream.verify_tls': 'Verify the certificate of the service',
  'upstream.tls_min_version': 'Oldest TLS version of the service',
  pooling_enabled: 'Share the address with other devices',
}

/**
 * Asks for a tunnel and creates it. Offers the services of the device, and a name for the chosen service.
 * Resolves with the tunnel, or undefined.
 * @param {{ hostname: string, tunnels: readonly any[], own: string | undefined }} device
 */
export function openAddForm(device) {
  const service = serviceField('')
  const domain = textField({
    name: 'domain',
    label: 'Public name (optional)',
    placeholder: 'cam.site.example.com',
    hint: 'Leave empty for a random name. Otherwise a host name that this device may use, or host:port for TCP.',
  })
  const suggestion = element('div', {})
  const protocol = selectField({
    name: 'protocol',
    label: 'Type',
    options: [
      ['http', 'Web pages and APIs (HTTP)'],
      ['tcp', 'TCP connections, such as SSH'],
      ['tls', 'TLS connections that the service decrypts'],
    ],
  })
  domain.append(suggestion)
  const input = (field) => field.querySelector('input, select')
  suggest({})
  return openForm({
    title: 'Add a tunnel',
    action: 'Add tunnel',
    fields: [
      service,
      foundServices({ tunnels: device.tunnels, onChosen: choose }),
      domain,
      protocol,
      ...otherFields({ protocol: 'any' }),
    ],
    run: (values) => {
      const name = values.domain.trim()
      const body = { protocol: values.protocol, ...bodyOf(values), ...(name && { domain: name }) }
      return ask('POST', 'api/tunnels', { body }).catch((error) => {
        if (error.code === 'domain-taken') error.errors = [{ pointer: '/domain', detail: TAKEN }]
        throw error
      })
    },
  })

  function choose(found) {
    input(service).value = found.forwards_to
    input(protocol).value = found.protocol
    suggest(found)
    input(domain).focus()
  }

  /** A TCP tunnel has no name of its own. */
  function suggest(found) {
    const name = found.protocol !== 'tcp' && suggestedName({ ...device, title: found.title })
    const use = () => {
      input(domain).value = name
      input(domain).focus()
      fill(suggestion)
    }
    fill(
      suggestion,
      name &&
        element(
          'button',
          { type: 'button', class: 'button button-quiet suggestion', onclick: use },
          `Use ${name}`,
        ),
    )
  }
}

/**
 * Asks for changes of a tunnel and saves them. If the tunnel was changed meanwhile, shows the changes, and
 * saves only when asked again. Resolves with the tunnel, or undefined.
 */
export async function openEditForm({ id, domain }) {
  const path = `api/tunnels/${encodeURIComponent(domain)}`
  // The version first: if the tunnel changes in between, saving is refused.
  let { etag, spec } = await read()
  return openForm({
    title: `Edit ${domain}`,
    action: 'Save',
    fields: [serviceField(spec.forwards_to), ...otherFields(spec)],
    run: async (values) => {
      try {
        const body = { protocol: spec.protocol, ...bodyOf(values) }
        return await ask('PUT', path, { body, ifMatch: etag })
      } catch (error) {
        if (error.code === 'precondition-failed') await explainConflict(error)
        throw error
      }
    },
  })

  async function read() {
    const seen = await ask('GET', `api/tunnels/${id}`, { hasEtag: true })
    const specs = await ask('GET', 'api/tunnels?view=spec')
    return { etag: seen.etag, spec: specs.find((it) => it.domain === domain) }
  }

  /** Adds the other change to the error. Saving again replaces that change. */
  async function explainConflict(error) {
    const before = spec
    error.isConflict = true
    try {
      ;({ etag, spec } = await read())
      error.errors = changesBetween(before, spec)
      error.message =
        'The tunnel was changed while you edited it. Your entries are still here. Save again to replace the other change.'
    } catch (failure) {
      if (failure.code !== 'tunnel-not-found') throw failure
      error.message =
        'The tunnel was removed while you edited it. Your entries are still here. Copy them to add the tunnel again.'
    }
  }
}

/** The fields that somebody else has changed, with their current values. */
function changesBetween(before, now) {
  const [old, current] = [valuesOf(before), valuesOf(now)]
  return Object.keys(LABELS)
    .filter((name) => old[name] !== current[name])
    .map((name) => ({
      pointer: `/${name.replace('.', '/')}`,
      detail: `changed meanwhile to: ${current[name] || 'default'}`,
    }))
}

function serviceField(value) {
  return textField({
    name: 'forwards_to',
    label: LABELS.forwards_to,
    value,
    placeholder: '8001',
    hint: 'Port of the service, or its address: host:port, https://host:port or unix:/path.',
  })
}

function otherFields(spec) {
  const values = valuesOf(spec)
  const isHttp = spec.protocol === 'http' || spec.protocol === 'any'
  const isOpen = (names) => names.some((name) => values[name])
  const text = (name, placeholder, hint) =>
    textField({ name, label: LABELS[name], value: values[name], placeholder, hint })
  const choice = (name, options) =>
    selectField({ name, label: LABELS[name], value: values[name], options })
  return [
    folded(
      'Traffic policy',
      isOpen(['policy']),
      longTextField({
        name: 'policy',
        label: LABELS.policy,
        value: values.policy,
        hint: 'JSON or YAML. Leave empty for the default policy of the device.',
      }),
    ),
    folded(
      'More options',
      isOpen(Object.keys(LABELS).slice(2)),
      text('upstream.timeout', '60', 'From 1 to 3600.'),
      text('upstream.health', 'tcp', 'off, tcp, or a path such as /health.'),
      text('upstream.max_connections', '', 'Leave empty if the service has no limit.'),
      isHttp && choice('upstream.http2', DEFAULT_OFF),
      choice('upstream.proxy_protocol', [
        ['', 'None'],
        ['1', 'Version 1'],
        ['2', 'Version 2'],
      ]),
      isHttp && choice('upstream.verify_tls', YES_NO),
      isHttp &&
        choice('upstream.tls_min_version', [
          ['', 'Default'],
          ['1.0', '1.0'],
          ['1.1', '1.1'],
          ['1.2', '1.2'],
        ]),
      choice('pooling_enabled', DEFAULT_OFF),
    ),
  ]
}

function folded(title, open, ...fields) {
  return element('details', { class: 'folded', open }, element('summary', {}, title), fields)
}

/** Texts of the fields, by name. */
function valuesOf({ forwards_to, policy, upstream = {}, pooling_enabled: isPooled }) {
  const options = Object.entries(upstream ?? {}).map(([name, value]) => [
    `${UPSTREAM}${name}`,
    String(value),
  ])
  return {
    forwards_to,
    policy: policy ? JSON.stringify(policy, null, 2) : '',
    ...Object.fromEntries(options),
    pooling_enabled: isPooled ? 'true' : '',
  }
}

/** Body of a request, from the texts of the fields. */
function bodyOf({ forwards_to, policy, pooling_enabled: isPooled, ...others }) {
  const options = Object.entries(others)
    .filter(([name, text]) => name.startsWith(UPSTREAM) && text.trim() !== '')
    .map(([name, text]) => [name.slice(UPSTREAM.length), text.trim()])
    .map(([name, text]) => [name, optionOf(name, text)])
  return {
    forwards_to: forwards_to.trim(),
    ...(policy.trim() !== '' && { policy }),
    ...(options.length > 0 && { upstream: Object.fromEntries(options) }),
    ...(isPooled && { pooling_enabled: true }),
  }
}

function optionOf(name, text) {
  if (text === 'true' || text === 'false') return text === 'true'
  // A text that is no number is refused by the agent, which names the range.
  return NUMBERS.has(name) && /^\d+$/.test(text) ? Number(text) : text
}
