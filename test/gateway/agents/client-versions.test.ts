import { describe, expect, it } from 'vitest'
import { findOlder } from '../../../src/gateway/agents/client-versions.ts'
import { clientVersions, Problem, readValue } from '../../../src/settings/forms.ts'
import { codeOf, RawAgent } from '../../helpers/raw-agent.ts'
import { connectSdk, sdkCode, startGateway } from '../../helpers/running-gateway.ts'

const list = (...texts: string[]) => readValue(clientVersions, texts.join(','))
const clients = { region: 'test', warnBelow: [], refuseBelow: [] }

describe('the versions of clients', () => {
  it.each([
    ['ngrok-go/1.9.3 ngrok-agent/3.1', '', '', 'ngrok-go/1.10', 'ngrok-go 1.9.3'],
    ['ngrok-go/1.10.0', '', '', 'ngrok-go/1.10', undefined],
    ['ngrok-go/1.10', '', '', 'ngrok-go/1.10.1', 'ngrok-go 1.10'],
    ['ngrok-go/2.0.0', '', '', 'ngrok-go/1.11', undefined],
    ['my-app/0.1 ngrok-go/1.2', '', '', 'ngrok-go/1.10', 'ngrok-go 1.2'],
    ['', '', '2.3.40', 'agent/3', 'agent 2.3.40'],
    ['', 'ngrok-rust', '0.13.1', 'ngrok-rust/0.14', 'ngrok-rust 0.13.1'],
    ['ngrok-rust/0.15.0', 'ngrok-rust', '0.13.1', 'ngrok-rust/0.14', undefined],
    ['NGROK-GO/1.2', '', '', 'ngrok-go/1.10', 'ngrok-go 1.2'],
    ['ngrok-go/1.2', '', '1.2', 'agent/3', undefined],
    ['', '', '', 'agent/3', undefined],
  ])(
    'of %j, type %j, version %j, compared with %s: %s',
    (UserAgent, ClientType, Version, least, older) => {
      const { found } = findOlder({ UserAgent, ClientType, Version }, list(least)) ?? {}
      expect(found && `${found.name} ${found.version}`).toBe(older)
    },
  )

  it.each(['ngrok-go', 'ngrok-go/', '/1.2', 'ngrok-go/new', 'ngrok-go/1.2.'])(
    'have no entry such as %j',
    (text) => expect(clientVersions.read(text)).toBeInstanceOf(Problem),
  )

  it('are told to old clients, and refused when they are too old', async () => {
    const running = await startGateway({
      clients: {
        ...clients,
        warnBelow: list('ngrok-go/1.11'),
        refuseBelow: list('ngrok-go/1.4'),
      },
    })
    const answerTo = async (UserAgent: string) => {
      const agent = await RawAgent.connect(running)
      return agent.auth(running.authtoken.reveal(), { UserAgent })
    }
    const text = 'Update ngrok-go 1.9.0 to 1.11 or newer: this gateway will refuse older ones.'
    expect((await answerTo('ngrok-go/1.9.0')).Extra).toMatchObject({
      Banner: text,
      DeprecationWarning: { NextMin: '1.11', NextDate: '0001-01-01T00:00:00Z', Msg: text },
    })
    const { Extra } = await answerTo('ngrok-go/1.11.2')
    expect(Extra).toMatchObject({ Banner: '' })
    expect(Extra).not.toHaveProperty('DeprecationWarning')
    const refused = await answerTo('ngrok-go/1.3.0')
    expect(codeOf(refused)).toBe('ERR_NGROK_121')
    expect(refused.Error).toContain('Update it to 1.4 or newer.')
  })

  it('of the SDK for Node.js: it goes on with a warning, and hears why it is refused', async () => {
    const warnBelow = list('ngrok-javascript/99', 'ngrok-rust/99')
    await connectSdk(await startGateway({ clients: { ...clients, warnBelow } }))
    const refusing = await startGateway({ clients: { ...clients, refuseBelow: warnBelow } })
    expect(await sdkCode(connectSdk(refusing))).toBe('ERR_NGROK_121')
  })
})
