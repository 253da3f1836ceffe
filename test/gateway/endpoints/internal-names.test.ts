// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import type { Listener } from '@ngrok/ngrok'
import { describe, expect, it, onTestFinished } from 'vitest'
import { formatListenAddress } from '../../../src/base/listen-address.ts'
import type { Credential } from '../../../src/gateway/records/credential-store.ts'
import { startEchoUpstream } from '../../helpers/echo-upstream.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { connectSdk, inTime, sdkCode, startGateway } from '../../helpers/running-gateway.ts'

const on = (path: string, ...actions: object[]) => ({
  expressions: [`req.url.path == '${path}'`],
  actions,
})
const forward = (host: string) => ({
  type: 'forward-internal',
  config: { url: `https://${host}` },
})
const ask = (host: string) => ({ type: 'http-request', config: { url: `https://${host}/` } })
const TELL = {
  type: 'custom-response',
  config: {
    body: "${actions.ngrok.http_request.error.code == '' ? actions.ngrok.http_request.res.body : actions.ngrok.http_request.error.code}",
  },
}
const FRONT = JSON.stringify({
  on_http_request: [
    on('/forward', forward('cam.internal')),
    on('/forward-nobody', forward('nobody.internal')),
    on('/ask', ask('cam.internal'), TELL),
    on('/ask-nobody', ask('nobody.internal'), TELL),
    { actions: [{ type: 'deny' }] },
  ],
})

/** A gateway with two accounts; each has a domain, an authtoken without rules and a front door. */
async function startAccounts() {
  const running = await startGateway()
  const { issuer, registrar, cloudEndpoints } = running.gateway.parts
  const open = async (name: string) => {
    const { id: ownerId } = await issuer.createBotUser({ name })
    await registrar.reserve({ domain: `*.${name}.test`, ownerId })
    const { credential, authtoken } = await issuer.createCredential({ ownerId })
    const host = `front.${name}.test`
    const request = { url: `https://${host}`, trafficPolicy: FRONT }
    const front = await cloudEndpoints.create(request, { isGranted: true })
    expect(front.ownerId).toBe(ownerId)
    const session = await connectSdk(running, { authtoken })
    const upstream = await startEchoUpstream(name)
    onTestFinished(() => upstream.close())
    const serve = (domain: string): Promise<Listener> =>
      inTime(
        session.httpEndpoint().domain(domain).listenAndForward(`http://localhost:${upstream.port}`),
      )
    /** The name of the device that answers, or the code of the refusal. */
    const visit = async (path: string): Promise<string> => {
      const ingress = `http://${formatListenAddress(running.addresses.http)}`
      const { text, headers, status } = await publicRequest({ ingress, host, path })
      const code = headers['ngrok-error-code']
      return text.startsWith('{"name"') ? JSON.parse(text).name : `${status} ${code ?? text}`
    }
    return { ownerId, credential, serve, visit }
  }
  const setRules = (credential: Credential, acl: string[]) =>
    issuer.updateCredential(credential, { acl })
  return { a: await open('one'), b: await open('two'), setRules, ...running.gateway.parts }
}

describe('an account', () => {
  it('goes offline with its bot user', async () => {
    const { a, b, botUsers, issuer, registry } = await startAccounts()
    await a.serve('cam.internal')
    const gone = botUsers.get(a.ownerId)
    if (gone) await issuer.deleteBotUser(gone)
    expect(await a.visit('/forward')).toBe('404 ERR_NGROK_3200')
    expect([...registry.all()].map(({ ownerId }) => ownerId)).toEqual([b.ownerId])
  })
})

describe('internal names', () => {
  it('belong to the account of the device, and are not there for the policies of others', async () => {
    const { a, b } = await startAccounts()
    await a.serve('cam.internal')
    expect([await a.visit('/forward'), await a.visit('/ask')]).toEqual(['one', 'one'])
    expect(await b.visit('/forward')).toBe('404 ERR_NGROK_3200')
    expect(await b.visit('/forward')).toBe(await b.visit('/forward-nobody'))
    expect(await b.visit('/ask')).toBe('200 ERR_NGROK_3200')
    expect(await b.visit('/ask')).toBe(await b.visit('/ask-nobody'))
    // The name is free for others; who has one finds it, and only it.
    const own = await b.serve('cam.internal')
    expect([await b.visit('/forward'), await b.visit('/ask')]).toEqual(['two', 'two'])
    expect([await a.visit('/forward'), await a.visit('/ask')]).toEqual(['one', 'one'])
    await inTime(own.close())
    expect(await b.visit('/forward')).toBe('404 ERR_NGROK_3200')
  })

  it('are found by all while a rule of the authtoken shares them, after their own', async () => {
    const { a, b, setRules } = await startAccounts()
    await a.serve('cam.internal')
    await setRules(a.credential, ['share:cam.internal'])
    expect([await b.visit('/forward'), await b.visit('/ask')]).toEqual(['one', 'one'])
    const own = await b.serve('cam.internal')
    expect([await b.visit('/forward'), await b.visit('/ask')]).toEqual(['two', 'two'])
    await inTime(own.close())
    expect(await b.visit('/forward')).toBe('one')
    await setRules(b.credential, ['share:cam.internal'])
    expect(await sdkCode(b.serve('cam.internal'))).toBe('ERR_NGROK_334')
    await setRules(a.credential, [])
    expect(await b.visit('/forward')).toBe('404 ERR_NGROK_3200')
    expect(await a.visit('/forward')).toBe('one')
    await b.serve('cam.internal')
    expect(await a.visit('/forward')).toBe('one')
  })
})
