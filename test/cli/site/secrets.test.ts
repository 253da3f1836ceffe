import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { createProgram } from '../../../src/cli/program.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { startGateway } from '../../helpers/running-gateway.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const VALUE = 'canary of the command'

/** `device-agent gateway secrets …` at the API of a gateway. */
async function startCommands() {
  const running = await startGateway()
  const { call, apiKey } = await managed(running)
  const folder = temporaryFolder()
  const file = (name: string, content: string | Buffer) => {
    writeFileSync(join(folder, name), content)
    return join(folder, name)
  }
  const keyFile = file('key', apiKey.reveal())
  const access = ['--api-url', `http://127.0.0.1:${running.addresses.api.port}`]
  const run = (...words: string[]) => runWith(keyFile, ...words)
  const runWith = async (keyFile: string, ...words: string[]) => {
    let out = ''
    const into = new Writable({
      write: (chunk, _encoding, done) => {
        out += String(chunk)
        done()
      },
    })
    const stop = new AbortController().signal
    const context = { environment: {}, stdout: into, stderr: into, stop }
    const given = ['gateway', 'secrets', ...words, ...access, '--key-file', keyFile]
    const program = createProgram(context)
    const failure = await program.parseAsync(given, { from: 'user' }).then(
      () => undefined,
      (error: Error) => error.message,
    )
    return { out, failure }
  }
  return { run, runWith, call, file }
}

describe('device-agent gateway secrets', () => {
  it('sets, lists and removes secrets, without ever printing a value', async () => {
    const { run, call, file } = await startCommands()
    const from = ['--file', file('value', `${VALUE}\n`)]
    expect((await run('list', '--json')).out).toBe('{"secrets":[]}\n')
    const created = await run('set', 'site', 'api/key', ...from)
    expect(created.out).toBe(
      "Created site/api/key. Policies use it with secrets.get('site', 'api/key').\n",
    )
    expect((await run('set', 'site', 'api/key', ...from)).out).toContain('Replaced the value of')
    const set = await run('set', 'site', 'other', ...from, '--json')
    expect(JSON.parse(set.out)).toMatchObject({ name: 'other', vault_name: 'site', allow: [] })
    const rules = [
      {
        actions: [
          {
            type: 'custom-response',
            config: { body: `\${secrets.get('site', 'api/key')}`, status_code: 200 },
          },
        ],
      },
    ]
    await call('POST', '/endpoints', {
      url: 'https://c.site.test',
      traffic_policy: JSON.stringify({ on_http_request: rules }),
    })
    const listed = await run('list')
    expect(listed.out).toMatch(
      /site +api\/key +gateway owner +\S+ +cloud endpoints +https:\/\/c\.site\.test/,
    )
    expect(JSON.parse((await run('list', '--json')).out).secrets).toHaveLength(2)
    const refused = (await run('remove', 'site', 'api/key')).failure
    expect(refused).toContain('https://c.site.test')
    expect(refused).toContain('device-agent gateway secrets remove site api/key --force')
    expect((await run('remove', 'site', 'api/key', '--force')).out).toMatch(
      /^Deleted site\/api\/key\. Policies still use it: https:\/\/c\.site\.test\S*\. .*is refused when the device connects again/,
    )
    expect((await run('remove', 'site', 'other', '--json')).failure).toBeUndefined()
    expect((await call('GET', '/vaults')).body.vaults).toEqual([])
    expect((await run('remove', 'site', 'other')).failure).toContain(
      'There is no secret site/other',
    )
    expect([created, set, listed].map(({ out }) => out).join()).not.toContain(VALUE)
  })

  it('keeps an empty vault that has a description', async () => {
    const { run, call, file } = await startCommands()
    await call('POST', '/vaults', { name: 'site', description: 'of the site' })
    const set = await run('set', 'site', 'key', '--file', file('value', VALUE))
    expect(set.failure).toBeUndefined()
    expect((await run('remove', 'site', 'key')).out).toBe('Deleted site/key.\n')
    expect((await call('GET', '/vaults')).body.vaults).toMatchObject([{ name: 'site' }])
  })

  it('changes whose policies may use a secret, and keeps the value', async () => {
    const { run, call, file } = await startCommands()
    await run('set', 'site', 'key', '--file', file('value', VALUE))
    const shown = async () => (await call('GET', '/vault_secrets')).body.secrets[0]
    const before = await shown()
    const { id: credential } = (await call('POST', '/credentials', {})).body
    const allowed = await run('allow', 'site', 'key', credential)
    expect(allowed.out).toBe(
      `Allowed for site/key: cloud endpoints of the account, ${credential}.\n`,
    )
    const { updated_at: _, ...rest } = before
    expect(await shown()).toMatchObject({ ...rest, allow: [credential] })
    const { id: other } = (await call('POST', '/credentials', {})).body
    await run('allow', '--add', 'site', 'key', other)
    expect((await shown()).allow).toEqual([credential, other])
    for (const words of [[], [credential, '--none']]) {
      const { failure, out } = await run('allow', 'site', 'key', ...words)
      expect(`${failure}${out}`).toContain('name one id or more, or use --none')
    }
    expect(JSON.parse((await run('allow', 'site', 'key', '--none', '--json')).out).allow).toEqual(
      [],
    )
    expect((await run('allow', 'site', 'key', 'cr_none')).failure).toContain('cr_none')
    expect((await run('allow', 'site', 'other', '--none')).failure).toContain('There is no secret')
  })

  it('keeps what many commands allow at the same time, up to the limit', async () => {
    const { run, call, file } = await startCommands()
    await run('set', 'site', 'key', '--file', file('value', VALUE))
    const shown = async () => (await call('GET', '/vault_secrets')).body.secrets[0]
    const create = async (count: number): Promise<string[]> => {
      const requests = Array.from({ length: count }, () => ({ path: 'credentials', body: {} }))
      const { body } = await call('POST', '/batch', { requests })
      return body.responses.map(({ body: { id } }: { body: { id: string } }) => id)
    }
    const ids = [...(await create(99)), ...(await create(2))]
    const [first = '', second = '', third = '', last = '', ...most] = ids
    const { id } = await shown()
    await call('PATCH', `/vault_secrets/${id}`, { allow: most })
    const added = [first, second, third]
    const runs = await Promise.all(added.map((one) => run('allow', '--add', 'site', 'key', one)))
    expect(runs.map(({ failure }) => failure)).toEqual(added.map(() => undefined))
    expect(new Set((await shown()).allow)).toEqual(new Set([...most, ...added]))
    const { failure } = await run('allow', '--add', 'site', 'key', last)
    expect(failure).toContain('would be allowed for 101 ids; at most 100 are possible')
    expect((await shown()).allow).toHaveLength(100)
  })

  it('means the account of its key, and no other', async () => {
    const { run, runWith, call, file } = await startCommands()
    const from = ['--file', file('value', VALUE)]
    const [a, b] = await Promise.all(
      ['a', 'b'].map(async (name) => {
        const { id } = (await call('POST', '/bot_users', { name })).body
        const body = { owner_id: id, owner_only: true }
        const { token } = (await call('POST', '/api_keys', body)).body
        return { id, key: file(`key-${name}`, token) }
      }),
    )
    if (!a || !b) throw new Error('no accounts')
    await run('set', 'site', 'key', ...from)
    const owners = async () =>
      (await call('GET', '/vault_secrets')).body.secrets.map(
        ({ owner_id: owner }: { owner_id: string | null }) => owner,
      )
    expect((await runWith(a.key, 'set', 'site', 'key', ...from)).out).toContain('Created')
    expect((await runWith(a.key, 'set', 'site', 'key', ...from)).out).toContain('Replaced')
    expect((await runWith(a.key, 'allow', 'site', 'key', a.id)).failure).toBeUndefined()
    expect((await runWith(b.key, 'remove', 'site', 'key')).failure).toContain('There is no secret')
    expect(await owners()).toEqual([a.id, null])
    // The gateway's owner names other accounts.
    await run('remove', 'site', 'key')
    expect((await run('remove', 'site', 'key')).failure).toContain('There is no secret')
    expect(await owners()).toEqual([a.id])
    expect((await run('remove', 'site', 'key', '--account', a.id)).failure).toBeUndefined()
    await runWith(b.key, 'set', 'site', 'key', ...from)
    expect((await runWith(b.key, 'remove', 'site', 'key')).failure).toBeUndefined()
    expect(await owners()).toEqual([])
  })

  it('takes no value as an argument, and says why', async () => {
    const { run, call } = await startCommands()
    const { out, failure } = await run('set', 'site', 'key', VALUE)
    expect(`${out}${failure}`).toContain('other users of this machine can see arguments')
    expect(`${out}${failure}`).not.toContain(VALUE)
    expect((await call('GET', '/vaults')).body.vaults).toEqual([])
  })

  it.each([
    ['nothing', ''],
    ['only a line break', '\n'],
    ['bytes that are no text', Buffer.from([0xff, 0xfe])],
  ])('refuses %s', async (_what, content) => {
    const { run, file } = await startCommands()
    const { failure } = await run('set', 'site', 'key', '--file', file('value', content))
    expect(failure).toMatch(/contains no value|is not UTF-8/)
  })
})
