import { describe, expect, it } from 'vitest'
import { startApi } from '../api/started-api.ts'
import { startManagementApi } from '../helpers/management-client.ts'
import { OpenApiCheck } from '../helpers/openapi-check.ts'

const documentOf = {
  agent: async () => (await startApi()).document,
  management: async () => (await startManagementApi()).document,
}

describe.each(['agent', 'management'] as const)('the OpenAPI document of the %s API', (name) => {
  // After a change that was meant: npm run openapi.
  it('is the one in git', async () => {
    const document = await documentOf[name]()
    await expect(`${JSON.stringify(document, null, 2)}\n`).toMatchFileSnapshot(
      `fixtures/${name}.json`,
    )
  })

  it('has schemas that a validator takes, strictly', async () => {
    const document = await documentOf[name]()
    expect(() => new OpenApiCheck(document).compileAll(document)).not.toThrow()
  })

  it('names each operation once', async () => {
    const ids = Object.values((await documentOf[name]()).paths).flatMap((operations) =>
      Object.values(operations).map(({ operationId }) => operationId),
    )
    expect(new Set(ids).size).toBe(ids.length)
  })
})
