package org.apache.iceberg.rest;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.util.Map;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.CatalogTests;
import org.apache.iceberg.view.ViewCatalogTests;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs the tests of Iceberg's REST compatibility kit against REST servers.
 *
 * <p>The arguments are addresses of servers. Each test is one line on stdout: the number of the address, the result,
 * the test and, if it did not pass, the class of its exception, with tabs between them.
 *
 * <p>The kit's two test classes are not published. These two extend the same published classes and use the kit's own
 * settings ({@code RCKUtils}), which are visible only in this package.
 */
public final class CompatibilityKit {
  public static void main(String[] addresses) {
    for (int number = 0; number < addresses.length; number++) {
      System.setProperty("uri", addresses[number]);
      var tests =
          LauncherDiscoveryRequestBuilder.request()
              .selectors(selectClass(Tables.class), selectClass(Views.class))
              .build();
      LauncherFactory.create().execute(tests, new Printer(number));
    }
  }

  private record Printer(int number) implements TestExecutionListener {
    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
      String error = result.getThrowable().map(one -> one.getClass().getName()).orElse("");
      if (test.isTest() || !error.isEmpty()) {
        System.out.println(String.join("\t", "" + number, result.getStatus().name(), test.getUniqueId(), error));
      }
      result.getThrowable().ifPresent(Throwable::printStackTrace);
    }
  }

  /** One client of the server that is tested. */
  private static final class Client {
    private static RESTCatalog catalog;

    static void connect() {
      catalog = RCKUtils.initCatalogClient();
    }
  }

  static class Tables extends CatalogTests<RESTCatalog> {
    @BeforeAll
    static void connect() {
      Client.connect();
    }

    @BeforeEach
    void purge() {
      RCKUtils.purgeCatalogTestEntries(Client.catalog);
    }

    @AfterAll
    static void close() throws Exception {
      Client.catalog.close();
    }

    @Override
    protected RESTCatalog catalog() {
      return Client.catalog;
    }

    @Override
    protected RESTCatalog initCatalog(String name, Map<String, String> properties) {
      return RCKUtils.initCatalogClient(properties);
    }

    @Override
    protected boolean requiresNamespaceCreate() {
      return true;
    }

    @Override
    protected boolean supportsServerSideRetry() {
      return true;
    }

    @Override
    protected boolean supportsNestedNamespaces() {
      return true;
    }

    /** The reference server keeps namespaces in SQL, where a dot separates levels. */
    @Override
    protected boolean supportsNamesWithDot() {
      return false;
    }
  }

  static class Views extends ViewCatalogTests<RESTCatalog> {
    @BeforeAll
    static void connect() {
      Client.connect();
    }

    @BeforeEach
    void purge() {
      RCKUtils.purgeCatalogTestEntries(Client.catalog);
    }

    @AfterAll
    static void close() throws Exception {
      Client.catalog.close();
    }

    @Override
    protected RESTCatalog catalog() {
      return Client.catalog;
    }

    @Override
    protected Catalog tableCatalog() {
      return Client.catalog;
    }

    @Override
    protected boolean requiresNamespaceCreate() {
      return true;
    }

    @Override
    protected boolean supportsServerSideRetry() {
      return true;
    }
  }
}
