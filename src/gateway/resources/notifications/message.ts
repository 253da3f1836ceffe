import { DEVICE_STEP_MS, type DeviceContent, type Notice } from './notice.ts'
import { localTime } from './quiet-times.ts'

/** Maximum number of lines for devices in one state, and for other events. */
const MAX_LISTED = 20

/** Plain text for people: one line, then lines with details. */
export interface Message {
  readonly title: string
  readonly lines: readonly string[]
}

export const TEST_MESSAGE: Message = {
  title: 'Test message',
  lines: ['This channel works. It gets messages when a device or the gateway has a problem.'],
}

/** Some devices with one heading. */
interface Group {
  readonly heading: (count: number) => string
  readonly single: string
  readonly has: (device: DeviceContent) => boolean
}

const GROUPS: readonly Group[] = [
  {
    heading: (count) => `${count} devices are offline`,
    single: 'is offline',
    has: ({ isOffline }) => isOffline,
  },
  {
    heading: (count) => `${count} devices are back`,
    single: 'is back',
    has: ({ isOffline, isToldOffline }) => !isOffline && isToldOffline,
  },
  {
    heading: (count) => `${count} devices were offline`,
    single: 'was offline',
    has: ({ isOffline, isToldOffline }) => !isOffline && !isToldOffline,
  },
]

/** One message with all notices. `leftOut`: events without a notice. */
export function compose(
  notices: readonly Notice[],
  { timeZone, leftOut }: { readonly timeZone: string; readonly leftOut: number },
): Message {
  const devices = notices.flatMap(({ content }) => (content.kind === 'device' ? [content] : []))
  const others = notices.flatMap(({ content }) => (content.kind === 'event' ? [content] : []))
  const titles: string[] = []
  const lines: string[] = []
  for (const { heading, single, has } of GROUPS) {
    const members = devices.filter(has)
    const [first] = members
    if (!first) continue
    const title = members.length === 1 ? `${first.name} ${single}` : heading(members.length)
    titles.push(title)
    lines.push(`${title}:`, ...listed(members, (device) => deviceLine(device, timeZone)))
  }
  const [only] = others
  if (only) {
    titles.push(others.length === 1 ? only.title : `${others.length} other events`)
    lines.push(...listed(others, ({ title, text }) => (text ? `${title}: ${text}` : title)))
  }
  if (leftOut > 0) lines.push(`${count(leftOut, 'more event')} left out. See the console.`)
  if (devices.some(({ outages }) => outages > 0)) {
    const minutes = DEVICE_STEP_MS / 60_000
    lines.push(`A device is reported as offline at most once in ${minutes} minutes.`)
  }
  return { title: titles.join(', ') || count(leftOut, 'event'), lines }
}

function listed<Item>(items: readonly Item[], line: (item: Item) => string): string[] {
  const lines = items.slice(0, MAX_LISTED).map((item) => `- ${line(item)}`)
  const more = items.length - MAX_LISTED
  return more > 0 ? [...lines, `- and ${more} more`] : lines
}

function deviceLine(device: DeviceContent, timeZone: string): string {
  const { name, text, isOffline, changedAt, isToldOffline, outages, outagesFrom } = device
  const time = (at: number) => `${localTime(at, timeZone)} (${timeZone})`
  const state = isOffline ? 'offline' : isToldOffline ? 'back' : 'online again'
  const parts = [name, `${state} since ${time(changedAt)}`]
  if (outagesFrom !== null)
    parts.push(
      `${count(outages, isToldOffline ? 'more outage' : 'outage')} since ${time(outagesFrom)}`,
    )
  return `${parts.join(', ')}${isOffline && text ? `. ${text}` : ''}`
}

const count = (number: number, noun: string) => `${number} ${noun}${number === 1 ? '' : 's'}`
