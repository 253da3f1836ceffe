import spectral from '@stoplight/spectral-core'
import rulesets from '@stoplight/spectral-rulesets'
import { expect, it } from 'vitest'
import { startApi } from '../api/started-api.ts'
import { startManagementApi } from '../helpers/management-client.ts'

/** What the recommended rules for OpenAPI say of a document, a line for each. */
async function findings(document: object): Promise<string[]> {
  const linter = new spectral.Spectral()
  linter.setRuleset(new spectral.Ruleset({ extends: [[rulesets.oas, 'recommended']] }))
  const results = await linter.run(JSON.parse(JSON.stringify(document)))
  return results.map(({ code, path, message }) => `${code} ${path.join('.')}: ${message}`)
}

it.each([
  ['agent', startApi],
  ['management', startManagementApi],
])('has nothing to say of the document of the %s API', async (_name, start) => {
  expect(await findings((await start()).document)).toEqual([])
})

it('has something to say of one without tags, and with an example that is none', async () => {
  const api = await startApi()
  const { tags: _tags, ...document } = api.document
  const untagged = await findings(document)
  expect(untagged).toContainEqual(expect.stringContaining('operation-tag-defined'))
  const text = JSON.stringify(api.document)
  const bad = JSON.parse(text.replace('"example":{"protocol":"http"', '"example":{"protocol":7'))
  expect(await findings(bad)).toContainEqual(expect.stringContaining('oas3-valid-media-example'))
})
