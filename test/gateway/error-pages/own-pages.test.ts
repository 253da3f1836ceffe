import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { ErrorKind } from '../../../src/gateway/error-pages/error-kind.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { type RunningOptions, startGateway } from '../../helpers/running-gateway.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const HTML = { accept: 'text/html' }

/** A gateway with two accounts, and a visitor who has a browser. */
async function startSite(options: RunningOptions = {}) {
  const { gateway, addresses } = await startGateway(options)
  const { parts } = gateway
  const { database, errorPageStore, issuer, domains, registrar, ids } = parts
  const account = async (name: string) => (await issuer.createBotUser({ name })).id
  const reserve = async (domain: string, ownerId: string | null) =>
    (await registrar.reserve({ domain, ownerId }, { isGranting: true })).id
  const set = (
    html: string,
    at: { domainId?: string; ownerId?: string; kind?: ErrorKind } = {},
  ) => {
    const { domainId = null, ownerId = null, kind = 'default' } = at
    const page = { id: ids.next('epg'), domainId, ownerId, kind, html }
    const kept = { ...page, description: '', metadata: '', createdAt: 0 }
    return database.change(() => errorPageStore.insert(kept))
  }
  const visit = (host: string, headers: Record<string, string> = HTML) =>
    publicRequest({ ingress: `http://127.0.0.1:${addresses.http.port}`, host, headers })
  const see = async (host: string) => (await visit(host)).text
  return { addresses, database, domains, registrar, account, reserve, set, visit, see }
}

describe('the own page for an error', () => {
  it('is that of the name, of a wildcard above, of the gateway, or the default', async () => {
    const { reserve, set, see, account } = await startSite()
    const a = await account('a')
    const wide = await reserve('*.a.test', a)
    const exact = await reserve('cam.a.test', a)
    expect(await see('cam.a.test')).toContain('<h1>Address not found</h1>')
    await set('gateway')
    expect(await see('cam.a.test')).toBe('gateway')
    await set('wildcard {{host}}', { domainId: wide, ownerId: a })
    expect(await see('cam.a.test')).toBe('wildcard cam.a.test')
    await set('exact', { domainId: exact, ownerId: a })
    expect(await see('cam.a.test')).toBe('exact')
    await set('exact and unknown', { domainId: exact, ownerId: a, kind: 'unknown' })
    await set('exact and busy', { domainId: exact, ownerId: a, kind: 'busy' })
    expect(await see('cam.a.test')).toBe('exact and unknown')
    expect(await see('other.a.test')).toBe('wildcard other.a.test')
    expect(await see('b.test')).toBe('gateway')
  })

  it('is never that of another account', async () => {
    const { reserve, set, see, account, domains, registrar } = await startSite()
    const [a, b] = [await account('a'), await account('b')]
    const wide = await reserve('*.shared.test', a)
    const inner = await reserve('b.shared.test', b)
    await set('page of a', { domainId: wide, ownerId: a })
    expect(await see('x.shared.test')).toBe('page of a')
    expect(await see('b.shared.test')).toContain('<h1>Address not found</h1>')
    await set('page of b', { domainId: inner, ownerId: b })
    expect(await see('b.shared.test')).toBe('page of b')
    const reserved = domains.get(inner) ?? expect.fail()
    await registrar.update(reserved, { ownerId: a }, { isGranting: true })
    expect(await see('b.shared.test')).toBe('page of a')
  })

  it('changes nothing but the body: status, codes, caching, for browsers alone', async () => {
    const { set, visit } = await startSite()
    await set('own')
    const page = await visit('no.test')
    expect([page.status, page.text]).toEqual([404, 'own'])
    expect(page.headers).toMatchObject({
      'cache-control': 'no-store',
      'content-length': '3',
      'content-type': 'text/html; charset=utf-8',
      'ngrok-error-code': 'ERR_NGROK_3200',
      vary: 'accept',
      'x-content-type-options': 'nosniff',
    })
    expect((await visit('no.test', {})).text).toContain('(ERR_NGROK_3200)\n')
    const json = await visit('no.test', { accept: 'application/json' })
    expect(JSON.parse(json.text)).toMatchObject({ status: 404, code: 'ERR_NGROK_3200' })
  })

  it('runs scripts only on names of the account that has set it', async () => {
    const { reserve, set, visit, account } = await startSite()
    const a = await account('a')
    await set('<script>1</script>')
    await set('own', { domainId: await reserve('*.a.test', a), ownerId: a })
    await set('mine', { domainId: await reserve('*.mine.test', null) })
    const policyAt = async (host: string) => (await visit(host)).headers['content-security-policy']
    expect(await policyAt('x.a.test')).toBeUndefined()
    expect(await policyAt('no.test')).toContain("script-src 'none'")
    expect(await policyAt('x.mine.test')).toContain("script-src 'none'")
  })

  it('shows the host that a visitor asks for as text', async () => {
    const { set, see } = await startSite()
    await set('<b>{{host}}|{{status}}|{{retry_after}}|</b>')
    expect(await see('SCRIPT.test')).toBe('<b>script.test|404||</b>')
    expect((await see('<script>.test')).toLowerCase()).not.toContain('<script>')
  })

  it('is followed when it changes, and when it is gone', async () => {
    const { set, see, database } = await startSite()
    await set('one')
    expect(await see('no.test')).toBe('one')
    await database.change(() => database.prepare("UPDATE error_pages SET html = 'two'").run())
    expect(await see('no.test')).toBe('two')
    await database.change(() => database.prepare('DELETE FROM error_pages').run())
    expect(await see('no.test')).toContain('<h1>Address not found</h1>')
  })

  it('of the folder comes after that of the API, and before the default', async () => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, 'unknown.html'), 'folder {{status}}')
    const { set, see } = await startSite({ errorPagesPath: folder })
    expect(await see('no.test')).toBe('folder 404')
    await set('for all kinds')
    expect(await see('no.test')).toBe('folder 404')
    await set('for this kind', { kind: 'unknown' })
    expect(await see('no.test')).toBe('for this kind')
  })
})
