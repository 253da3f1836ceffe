import { describe, expect, it } from 'vitest'
import { MAX_USER_AGENT, readUserAgent } from '../../../src/policy/exchange/user-agent.ts'
import { Account } from '../../../src/policy/expression/account.ts'
import { createExchange, evaluate } from '../../helpers/policy-exchange.ts'

const KHTML = 'AppleWebKit/537.36 (KHTML, like Gecko)'

describe('readUserAgent', () => {
  it.each<[string, object]>([
    [
      `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${KHTML} Chrome/120.0.0.0 Safari/537.36 Edg/120.0.2210.91`,
      {
        name: 'Edge',
        version: '120.0.2210.91',
        os: 'Windows',
        osVersion: '10.0',
        platform: 'desktop',
      },
    ],
    [
      'Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.2 Mobile/15E148 Safari/604.1',
      { name: 'Safari', os: 'iOS', osVersion: '17.2', device: 'iPhone', platform: 'mobile' },
    ],
    [
      `Mozilla/5.0 (Linux; Android 13; SM-X700) ${KHTML} Chrome/119.0 Safari/537.36`,
      { name: 'Chrome', os: 'Android', osVersion: '13', device: 'SM-X700', platform: 'tablet' },
    ],
    [
      'Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)',
      { name: 'Googlebot', version: '2.1', isBot: true, url: 'http://www.google.com/bot.html' },
    ],
    [
      'Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)',
      { name: 'AhrefsBot', version: '7.0', isBot: true, platform: '' },
    ],
    ['curl/8.5.0', { name: 'curl', version: '8.5.0', isBot: false, platform: '', os: '' }],
    ['MyCrawler', { name: 'MyCrawler', version: '', isBot: true }],
    ['', { name: '', version: '', os: '', device: '', url: '', platform: '', isBot: false }],
  ])('reads %j', (text, expected) => {
    expect(readUserAgent(text)).toMatchObject(expected)
    expect(readUserAgent(text)).toBe(readUserAgent(text))
  })

  it('looks no further than the first characters', () => {
    const far = `${'x'.repeat(MAX_USER_AGENT)} Googlebot/2.1`
    expect(readUserAgent(far).isBot).toBe(false)
    expect(readUserAgent(far)).toBe(readUserAgent('x'.repeat(MAX_USER_AGENT)))
  })

  it('forgets what it has read longest ago, and not all', () => {
    const first = readUserAgent('agent-0/1')
    for (let index = 1; index < 1_000; index += 1) readUserAgent(`agent-${index}/1`)
    const second = readUserAgent('agent-1/1')
    readUserAgent('one-more/1')
    expect(readUserAgent('agent-0/1')).not.toBe(first)
    expect(readUserAgent('agent-999/1')).toBe(readUserAgent('agent-999/1'))
    expect(second.name).toBe('agent-1')
  })
})

describe('req.user_agent', () => {
  const headers = [
    'User-Agent',
    'Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)',
  ]

  it.each([
    ['req.user_agent.name', 'Googlebot'],
    ['req.user_agent.version', '2.1'],
    ['req.user_agent.is_bot', true],
    ['req.user_agent.is_desktop', false],
    ["req.user_agent.contains('Googlebot') && req.user_agent.url.endsWith('bot.html')", true],
  ])('%s is %j', (source, value) => {
    expect(evaluate(source, { headers })).toEqual(value)
  })

  it('is paid for once a request, by its length, whoever has read it before', () => {
    const spent = (text: string, times: number) => {
      const { parsed } = createExchange()
      const account = new Account()
      for (let time = 0; time < times; time += 1) parsed.userAgent(text, account)
      return account.spent
    }
    expect(spent('curl/8.5.0', 1)).toBe(spent('curl/8.5.0', 9))
    expect(spent('x'.repeat(MAX_USER_AGENT), 1)).toBeGreaterThan(2 * spent('curl/8.5.0', 1))
    expect(spent('x'.repeat(9_000), 1)).toBe(spent('x'.repeat(MAX_USER_AGENT), 1))
  })
})
