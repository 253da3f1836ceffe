import type { ChannelKind } from './channel-store.ts'
import type { Message } from './message.ts'

export type ChatKind = Exclude<ChannelKind, 'email'>

/** Request to a chat service. */
export interface ChatRequest {
  readonly contentType: string
  readonly body: string
}

interface Preset {
  /** Maximum number of characters that the service accepts, with some room for escapes. */
  readonly maxLength: number
  /** Makes text of other people literal. */
  readonly literal: (text: string) => string
  /** JSON, or plain text. */
  readonly body: (message: Message, url: URL) => object | string
}

const unchanged = (text: string) => text
/** Entities of Slack, without which `<!channel>` would mention everyone. */
const forSlack = (text: string) =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
const forMarkdown = (text: string) => text.replace(/[\\`*_~|<>[\]#]/g, '\\$&')
/** An invisible character after @ prevents a mention. */
const withoutMentions = (text: string) => text.replaceAll('@', '@\u200b')

/** Request body of each service. */
const PRESETS: Readonly<Record<ChatKind, Preset>> = {
  slack: {
    maxLength: 3_000,
    literal: forSlack,
    body: ({ title, lines }) => ({
      text: [`*${title}*`, ...lines].join('\n'),
      unfurl_links: false,
      unfurl_media: false,
    }),
  },
  discord: {
    maxLength: 1_900,
    literal: forMarkdown,
    body: ({ title, lines }) => ({
      content: [`**${title}**`, ...lines].join('\n'),
      allowed_mentions: { parse: [] },
    }),
  },
  teams: {
    maxLength: 8_000,
    // A text run is not read as Markdown.
    literal: unchanged,
    body: ({ title, lines }) => ({ type: 'message', attachments: [cardOf(title, lines)] }),
  },
  mattermost: {
    maxLength: 3_500,
    literal: (text) => withoutMentions(forMarkdown(text)),
    body: ({ title, lines }) => ({ text: [`**${title}**`, ...lines].join('\n') }),
  },
  ntfy: {
    // Longer texts become attachments. The limit is 4,096 bytes.
    maxLength: 1_300,
    literal: unchanged,
    body: ({ title, lines }) => [title, ...lines].join('\n'),
  },
  telegram: {
    maxLength: 3_500,
    literal: unchanged,
    body: ({ title, lines }, url) => ({
      chat_id: url.searchParams.get('chat_id'),
      text: [title, ...lines].join('\n'),
      link_preview_options: { is_disabled: true },
    }),
  },
  webhook: {
    maxLength: 30_000,
    literal: unchanged,
    body: ({ title, lines }) => ({ type: 'notification', title, text: lines.join('\n') }),
  },
}

/** The request with a message, escaped for the service and within its limit. */
export function chatRequest(kind: ChatKind, message: Message, url: URL): ChatRequest {
  const { maxLength, literal, body } = PRESETS[kind]
  const content = body(fitted(escaped(message, literal), maxLength), url)
  return typeof content === 'string'
    ? { contentType: 'text/plain; charset=utf-8', body: content }
    : { contentType: 'application/json', body: JSON.stringify(content) }
}

function escaped({ title, lines }: Message, literal: (text: string) => string): Message {
  return { title: literal(title), lines: lines.map(literal) }
}

/** Drops the last lines of a message that is too long. */
function fitted({ title, lines }: Message, maxLength: number): Message {
  const kept: string[] = []
  let length = title.length
  for (const line of lines) {
    length += line.length + 1
    if (length > maxLength) return { title, lines: [...kept, '…'] }
    kept.push(line)
  }
  return { title, lines }
}

/** Adaptive card for a workflow of Microsoft Teams. */
function cardOf(title: string, lines: readonly string[]): object {
  const paragraph = (text: string, weight: string) => ({
    type: 'RichTextBlock',
    inlines: [{ type: 'TextRun', text, weight }],
  })
  return {
    contentType: 'application/vnd.microsoft.card.adaptive',
    content: {
      $schema: 'http://adaptivecards.io/schemas/adaptive-card.json',
      type: 'AdaptiveCard',
      version: '1.4',
      body: [paragraph(title, 'Bolder'), ...lines.map((line) => paragraph(line, 'Default'))],
    },
  }
}
