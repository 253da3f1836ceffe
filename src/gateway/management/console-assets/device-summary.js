import { labelOf, reasonOf, sinceOf, toneOf } from './device-states.js'
import { formatBytes, formatCount, formatNumber } from './format.js'

/** A device as the texts of a line. */
export function deviceSummary(device) {
  const { name, state, ip, version, endpoints, tags, is_duplicate: isDuplicate } = device
  return {
    name,
    tone: toneOf(state),
    state: [labelOf(state), sinceOf(device)].filter(Boolean).join(' '),
    title: reasonOf(device),
    tags: [
      ...(isDuplicate ? [{ text: 'connected twice', tone: 'bad' }] : []),
      ...tags.map((text) => ({ text })),
    ],
    cells: [
      formatCount(endpoints, 'endpoint'),
      state === 'online'
        ? `${formatNumber(device.requestsPerS)} req/s · ${formatBytes(device.bytesPerS)}/s`
        : '',
      [ip, version].filter(Boolean).join(' · '),
    ],
  }
}
