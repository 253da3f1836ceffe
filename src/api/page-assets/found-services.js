import { ask } from './api.js'
import { element, fill } from './element.js'

const MAX_SHOWN = 8
const MAX_LABEL = 24

/**
 * Returns a list of the services that were found on the device and have no tunnel yet. `onChosen` gets the
 * chosen service. The list stays empty if nothing is found.
 * @param {{ tunnels: readonly { forwards_to: string }[], onChosen: (service: any) => void }} options
 */
export function foundServices({ tunnels, onChosen }) {
  const node = element('div', { class: 'found', role: 'status' })
  fill(node, element('p', { class: 'hint' }, 'Searching for services on this device …'))
  void search()
  return node

  async function search() {
    try {
      const { services } = await ask('GET', 'api/services')
      const taken = new Set(tunnels.map(({ forwards_to }) => forwards_to))
      const free = services.filter(({ forwards_to }) => !taken.has(forwards_to))
      // Web services first: they are what most tunnels are for.
      free.sort((a, b) => Number(a.protocol !== 'http') - Number(b.protocol !== 'http'))
      if (free.length > 0) show(free.slice(0, MAX_SHOWN))
      else fill(node)
    } catch {
      // People can type the address.
      fill(node)
    }
  }

  function show(services) {
    const list = element('ul', { 'aria-label': 'Services found on this device' })
    fill(
      list,
      services.map((service) => element('li', {}, choice(service))),
    )
    fill(node, element('p', { class: 'hint' }, 'Found on this device:'), list)
  }

  function choice(service) {
    const { port, title, protocol, http_checked: isChecked } = service
    const untitled = isChecked ? 'no HTTP' : 'not checked'
    const name = title ?? (protocol === 'http' ? 'web service' : untitled)
    return element(
      'button',
      { type: 'button', class: 'button found-service', onclick: () => onChosen(service) },
      element('strong', {}, String(port)),
      element('span', { class: 'found-title' }, name),
    )
  }
}

/**
 * Returns a name for a tunnel to a service: a label from its title, below the domain of the other tunnels.
 * Undefined if no domain is known, or if the name has a tunnel.
 * @param {{ title?: string | null, hostname: string, tunnels: readonly any[], own: string | undefined }} options
 */
export function suggestedName({ title, hostname, tunnels, own }) {
  const domains = tunnels.filter(({ protocol }) => protocol === 'http').map(({ domain }) => domain)
  const known = domains.find((domain) => domain.includes('.')) ?? own
  if (known === undefined) return undefined
  const parent = known.slice(known.indexOf('.') + 1)
  const name = `${labelOf(title ?? '') || labelOf(hostname) || 'web'}.${parent}`
  return parent.includes('.') && !domains.includes(name) ? name : undefined
}

/** Whole words, up to `MAX_LABEL` characters. A longer first word is cut. */
function labelOf(text) {
  const words = text
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '')
  const end = words.length > MAX_LABEL ? words.lastIndexOf('-', MAX_LABEL) : -1
  return words.slice(0, end > 0 ? end : MAX_LABEL)
}
