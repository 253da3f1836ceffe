import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { expect, it } from 'vitest'
import { createProgram } from '../../src/cli/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** The notes of `policy explain` about a policy with this action. */
async function notesOf(type: string, config: object): Promise<string> {
  const file = join(temporaryFolder(), 'policy.json')
  writeFileSync(file, JSON.stringify({ on_http_request: [{ actions: [{ type, config }] }] }))
  const [stdout, stderr] = [new PassThrough(), new PassThrough()]
  const context = { environment: {}, stdout, stderr, stop: new AbortController().signal }
  const sample = ['--request', 'GET https://cam.test/', '-H', 'x-token: one.two.three']
  const words = ['policy', 'explain', file, ...sample]
  await createProgram(context).parseAsync(words, { from: 'user' })
  stderr.end()
  return text(stderr)
}

it('says why a secret or a sign-in behaves differently at the gateway', async () => {
  // biome-ignore lint/suspicious/noTemplateCurlyInString: interpolation of the policy
  const password = "tom:${secrets.get('site', 'tom')}"
  const secret = await notesOf('basic-auth', { credentials: [password] })
  expect(secret).toMatch(/^note: explain does not know the values of secrets\..*\n$/)
  const client = { client_id: 'a', client_secret: 'b' }
  const signIn = await notesOf('openid-connect', { issuer_url: 'https://id.test', ...client })
  expect(signIn).toMatch(/^note: explain has no visitor that has signed in\..*\n$/)
  expect(await notesOf('basic-auth', { credentials: ['tom:long-enough'] })).toBe('')
})

it('says that the key files of a gateway are not read', async () => {
  const notes = await notesOf('jwt-validation', {
    issuer: { allow_list: [{ value: 'https://id.test' }] },
    http: { tokens: [{ type: 'jwt', method: 'header', name: 'x-token' }] },
    jws: {
      allowed_algorithms: ['ES256'],
      keys: { sources: { additional_jkus: ['file:///etc/keys/jwks.json'] } },
    },
  })
  expect(notes).toMatch(/^note: explain reads the keys of jwt-validation only if .*\n$/)
})
