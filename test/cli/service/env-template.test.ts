import { describe, expect, it } from 'vitest'
import { envTemplate } from '../../../src/cli/service/env-template.ts'
import { parseSettings } from '../../../src/settings/settings.ts'

describe.each([
  ['device-agent', 'AGENT_DOMAIN', 'GATEWAY_HTTP_LISTEN'],
  ['device-gateway', 'GATEWAY_HTTP_LISTEN', 'AGENT_DOMAIN'],
] as const)('the settings file of %s', (service, own, foreign) => {
  const text = envTemplate(service)

  it('sets nothing, and shows each of its settings with its meaning', () => {
    expect(text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))).toEqual([])
    expect(text).toMatch(new RegExp(`^# .+\n#${own}=`, 'm'))
    expect(text).not.toContain(`#${foreign}=`)
  })

  it('has values that are taken when the sign before them is removed', () => {
    const given = [...text.matchAll(/^#([A-Z_]+)=(.+)$/gm)].map(([, name, value]) => [name, value])
    expect(given.length).toBeGreaterThan(5)
    expect(parseSettings(Object.fromEntries(given))).toEqual(parseSettings({}))
  })

  it('has no place for a secret', () => {
    expect(text).not.toMatch(/^#(?:SVC_AUTHTOKEN|SVC_API_KEY|AGENT_API_TOKEN)=/m)
  })
})
