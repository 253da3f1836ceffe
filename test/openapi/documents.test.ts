import { describe, expect, it } from 'vitest'
import { agentApiDocument } from '../../src/api/openapi-document.ts'
import { managementApiDocument } from '../../src/gateway/management/openapi-document.ts'
import { OpenApiCheck } from '../helpers/openapi-check.ts'

describe.each([
  ['agent', agentApiDocument()],
  ['management', managementApiDocument()],
])('the OpenAPI document of the %s API', (name, document) => {
  // After a change that was meant: npm run openapi.
  it('is the one in git', async () => {
    await expect(`${JSON.stringify(document, null, 2)}\n`).toMatchFileSnapshot(
      `fixtures/${name}.json`,
    )
  })

  it('has schemas that a validator takes, strictly', () => {
    expect(() => new OpenApiCheck(document).compileAll(document)).not.toThrow()
  })

  it('names each operation once', () => {
    const ids = Object.values(document.paths).flatMap((operations) =>
      Object.values(operations).map(({ operationId }) => operationId),
    )
    expect(new Set(ids).size).toBe(ids.length)
  })
})
