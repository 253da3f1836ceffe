import { describe, expect, it } from 'vitest'
import {
  type ChatKind,
  chatRequest,
} from '../../../../src/gateway/resources/notifications/chat-presets.ts'

const EVIL = '<!channel> @everyone *b* [x](https://evil.example) </script> "\\ `c`'
const MESSAGE = { title: `${EVIL} is offline`, lines: [`- ${EVIL}, offline`] }
const KINDS: readonly ChatKind[] = [
  ...(['slack', 'discord', 'teams', 'mattermost', 'telegram', 'webhook'] as const),
]
const url = new URL('https://chat.example/hook?chat_id=-100')
const jsonOf = (kind: ChatKind, message = MESSAGE) =>
  JSON.parse(chatRequest(kind, message, url).body)

describe('the request to a chat', () => {
  it('has the form of each service', () => {
    const message = { title: 'cam is offline', lines: ['cam is offline:', '- cam'] }
    const bodies = Object.fromEntries(KINDS.map((kind) => [kind, jsonOf(kind, message)]))
    expect(bodies).toMatchObject({
      slack: { text: '*cam is offline*\ncam is offline:\n- cam' },
      discord: { content: '**cam is offline**\ncam is offline:\n- cam' },
      teams: {
        type: 'message',
        attachments: [
          {
            contentType: 'application/vnd.microsoft.card.adaptive',
            content: { type: 'AdaptiveCard', body: expect.any(Array) },
          },
        ],
      },
      mattermost: { text: '**cam is offline**\ncam is offline:\n- cam' },
      telegram: { chat_id: '-100', text: 'cam is offline\ncam is offline:\n- cam' },
      webhook: { type: 'notification', title: 'cam is offline', text: 'cam is offline:\n- cam' },
    })
    expect(chatRequest('ntfy', message, url)).toEqual({
      contentType: 'text/plain; charset=utf-8',
      body: 'cam is offline\ncam is offline:\n- cam',
    })
  })

  it('has nothing that a name could mean to the service', () => {
    expect(jsonOf('slack').text).toContain('&lt;!channel&gt;')
    expect(jsonOf('slack').text).not.toContain('<')
    expect(jsonOf('discord').allowed_mentions).toEqual({ parse: [] })
    for (const text of [jsonOf('discord').content, jsonOf('mattermost').text]) {
      expect(text).toContain('\\[x\\]')
      expect(text).toContain('\\<!channel\\>')
      expect(text).toContain('\\*b\\*')
    }
    expect(jsonOf('mattermost').text).not.toContain('@everyone')
    const card = jsonOf('teams').attachments[0].content.body
    expect(card.map((it: { type: string }) => it.type)).toEqual(['RichTextBlock', 'RichTextBlock'])
    expect(jsonOf('telegram')).not.toHaveProperty('parse_mode')
  })

  it('stays within the limit of each service', () => {
    const lines = Array.from({ length: 80 }, (_, n) => `- ${n} ${'ä'.repeat(400)}`)
    const long = { title: 'cam is offline', lines }
    expect(jsonOf('discord', long).content.length).toBeLessThanOrEqual(2_000)
    expect(jsonOf('discord', long).content).toMatch(/\n…$/)
    expect(jsonOf('telegram', long).text.length).toBeLessThanOrEqual(4_096)
    expect(Buffer.byteLength(chatRequest('ntfy', long, url).body)).toBeLessThanOrEqual(4_096)
  })
})
