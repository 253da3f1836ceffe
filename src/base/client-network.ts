/** Groups of an IPv6 address, and how many of them name the network: 64 bits. */
const GROUPS = 8
const NETWORK_GROUPS = 4

/**
 * Whom an address stands for where shares are counted: an IPv4 address itself, of an IPv6 address
 * its /64, which is what one customer gets at least. `address` is as Node writes it; an IPv4 address
 * inside an IPv6 one has been taken out.
 */
export function clientNetwork(address: string): string {
  if (!address.includes(':')) return address
  const [before = '', after] = address.split('::')
  const head = groupsOf(before)
  const tail = groupsOf(after ?? '')
  const zeros = Array<string>(Math.max(0, GROUPS - head.length - tail.length)).fill('0')
  return [...head, ...zeros, ...tail].slice(0, NETWORK_GROUPS).join(':')
}

const groupsOf = (text: string) => (text === '' ? [] : text.split(':'))
