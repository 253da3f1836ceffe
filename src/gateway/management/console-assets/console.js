import { ask } from './api.js'
import { runPage } from './shell.js'
import { addressesView } from './views/addresses-view.js'
import { apiKeysView } from './views/api-keys-view.js'
import { auditView } from './views/audit-view.js'
import { authtokensView } from './views/authtokens-view.js'
import { botUsersView } from './views/bot-users-view.js'
import { certificatesView } from './views/certificates-view.js'
import { clientCasView } from './views/client-cas-view.js'
import { devicesView } from './views/devices-view.js'
import { domainsView } from './views/domains-view.js'
import { endpointsView } from './views/endpoints-view.js'
import { errorPagesView } from './views/error-pages-view.js'
import { invitesView } from './views/invites-view.js'
import { nodesView } from './views/nodes-view.js'
import { notificationsView } from './views/notifications-view.js'
import { secretsView } from './views/secrets-view.js'
import { signInView } from './views/sign-in-view.js'
import { webhooksView } from './views/webhooks-view.js'

void runPage({
  title: 'Gateway console',
  views: {
    devices: { label: 'Devices', make: devicesView },
    endpoints: { label: 'Endpoints', make: endpointsView },
    invitations: { label: 'Invitations', make: invitesView },
    domains: { label: 'Domains', make: domainsView },
    certificates: { label: 'Certificates', make: certificatesView },
    'client-cas': { label: 'Client CAs', make: clientCasView },
    addresses: { label: 'Addresses', make: addressesView },
    'error-pages': { label: 'Error pages', make: errorPagesView },
    'bot-users': { label: 'Bot users', make: botUsersView },
    authtokens: { label: 'Authtokens', make: authtokensView },
    'api-keys': { label: 'API keys', make: apiKeysView },
    secrets: { label: 'Secrets', make: secretsView },
    notifications: { label: 'Notifications', make: notificationsView },
    webhooks: { label: 'Webhooks', make: webhooksView },
    nodes: { label: 'Nodes', make: nodesView },
    audit: { label: 'Audit', make: auditView },
  },
  ask,
  enter: async () => ({ session: (await ask('GET', 'session')).api_key }),
  signInView,
  describe: ({ name, scope }) => (scope === 'read' ? `${name} (read only)` : name),
  readOnlyNotice:
    'This API key can only read. To make changes, sign in with an API key with the scope write.',
})
